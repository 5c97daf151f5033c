"""Unit tests of the operator. A package of its own name: as `operator.tests.…` pytest would replace the standard library's `operator`."""
