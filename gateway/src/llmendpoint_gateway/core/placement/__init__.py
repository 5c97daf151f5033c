"""Which replica gets a request, and when: routes, queues, the pick, and the breakers."""
