"""Real clients against the real server: each is a script that is run as its users run it, in an environment of their own."""
