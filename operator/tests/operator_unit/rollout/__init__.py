"""Unit tests of the operator: rollouts."""
