"""The formulas: pure functions of numbers that somebody else has read."""
