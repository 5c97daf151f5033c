"""Unit tests of the operator: what every observer uses."""
