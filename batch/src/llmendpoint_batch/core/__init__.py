"""What is decided, from values alone: no file, no clock, no network, no randomness."""
