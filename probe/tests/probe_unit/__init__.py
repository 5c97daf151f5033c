"""Unit tests of the probe."""
