"""Unit tests of the operator: calls, caches, the Lease and Events."""
