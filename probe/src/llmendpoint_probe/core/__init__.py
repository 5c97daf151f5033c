"""What the probe decides. Pure: events and the time go in, an answer comes out."""
