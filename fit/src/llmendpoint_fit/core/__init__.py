"""The formulas: pure functions of numbers that the caller has read."""
