"""Unit tests of the operator: a revision's pods."""
