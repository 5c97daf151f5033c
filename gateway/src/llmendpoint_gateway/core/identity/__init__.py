"""Who asks: callers by address, and what is known of tokens."""
