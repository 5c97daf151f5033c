"""Who sends a request: callers by address, and verdicts on tokens."""
