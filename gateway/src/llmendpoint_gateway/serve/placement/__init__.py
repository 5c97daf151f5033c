"""What changes with every request and every object, and the stream that reports it."""
