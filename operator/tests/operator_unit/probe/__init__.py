"""Unit tests of the operator: the sidecar."""
