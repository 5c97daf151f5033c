"""The Kubernetes API: calls, caches, the Lease and Events. No decision about an endpoint is made here."""
