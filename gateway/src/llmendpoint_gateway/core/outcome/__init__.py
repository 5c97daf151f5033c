"""How requests end: single attempts, and requests that crash their replicas."""
