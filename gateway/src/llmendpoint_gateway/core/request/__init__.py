"""What the gateway reads of a request's headers and body, once, and the gateway's own answers."""
