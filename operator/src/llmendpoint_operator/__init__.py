"""Reconciles LLMEndpoint resources into revisions, Deployments and Services."""
