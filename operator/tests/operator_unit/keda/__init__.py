"""Unit tests of the operator: KEDA's gRPC."""
