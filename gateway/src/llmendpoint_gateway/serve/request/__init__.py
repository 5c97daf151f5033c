"""Each request, from Envoy's question to the answer."""
