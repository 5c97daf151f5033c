"""What became of requests: one attempt, and requests that crash their replicas."""
