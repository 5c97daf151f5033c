"""The Kubernetes API: calls, caches, the Lease and Events. Nothing here decides anything about an endpoint."""
