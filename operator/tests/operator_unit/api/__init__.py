"""Unit tests of the operator: the resources."""
