"""What is there: the API server's objects, and the engines' loads."""
