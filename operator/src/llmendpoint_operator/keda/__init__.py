"""The operator as KEDA's external scaler: what callers ask of an endpoint, over gRPC with mutual TLS.

KEDA scales, and writes /scale; this only tells how many replicas there is work for. Every replica of the operator
serves it, whether it holds the lease or not.
"""
