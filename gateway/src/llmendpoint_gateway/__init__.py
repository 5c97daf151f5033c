"""The way in: an Envoy control plane and endpoint picker for LLM endpoints."""
