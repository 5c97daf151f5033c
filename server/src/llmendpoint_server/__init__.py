"""Continuous batching server for causal language models, OpenAI API."""
