"""The operator: reconciles LLMEndpoint resources into revisions, Deployments and Services."""
