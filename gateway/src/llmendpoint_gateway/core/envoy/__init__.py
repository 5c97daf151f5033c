"""What Envoy is told, and what it tells: its configuration, its bounds, and the wire formats."""
