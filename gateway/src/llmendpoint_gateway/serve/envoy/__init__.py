"""Envoy beside the picker: its process, its configuration over ADS, and its drain."""
