"""Remembers of each endpoint: its last spec, children that others change back, and objects that stand in a child's place."""
