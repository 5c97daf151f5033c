"""What the gateway exchanges with Envoy: its configuration, its bounds, and the wire formats."""
