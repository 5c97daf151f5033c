"""A continuous-batching server for causal language models, with OpenAI's API."""
