"""Unit tests of the operator: whether a model fits."""
