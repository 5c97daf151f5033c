"""The operator as KEDA's external scaler: reports an endpoint's load over gRPC with mutual TLS.

KEDA scales, by writing /scale; this service only reports the number of replicas that the load needs. Every
process of the operator serves it, whether it holds the Lease or not.
"""
