"""Bodies and requests that strangers may send, against the real server, its real engine, and the real gateway."""
