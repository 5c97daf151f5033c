"""Unit tests of the operator: the number of replicas."""
