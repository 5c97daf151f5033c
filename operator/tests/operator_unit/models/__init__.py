"""Unit tests of the operator: model files."""
