"""Answers Envoy, the operator and probes."""
