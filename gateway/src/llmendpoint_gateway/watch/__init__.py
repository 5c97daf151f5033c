"""Reads the API server's objects, and the engines' loads."""
