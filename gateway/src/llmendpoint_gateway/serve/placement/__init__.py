"""What changes with every request and every object, and who is told of it."""
