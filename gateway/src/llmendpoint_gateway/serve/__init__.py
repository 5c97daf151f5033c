"""What answers: Envoy's questions, and those of the operator and of probes."""
