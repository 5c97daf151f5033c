"""What a request is: its headers and body, read once, and the gateway's own answers."""
