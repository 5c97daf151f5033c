"""The gateway: an Envoy control plane and an endpoint picker for LLM endpoints."""
