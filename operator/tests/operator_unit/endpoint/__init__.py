"""Unit tests of the operator: one endpoint as a whole."""
