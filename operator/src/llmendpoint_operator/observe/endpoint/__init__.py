"""Remembers each endpoint's last spec, children that others change back, and foreign objects in their
place."""
