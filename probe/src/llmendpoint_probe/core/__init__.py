"""What the probe decides. Pure: events and the moment in, an answer out."""
