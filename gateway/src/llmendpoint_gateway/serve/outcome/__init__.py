"""What Envoy's log says of attempts, and what follows from it."""
