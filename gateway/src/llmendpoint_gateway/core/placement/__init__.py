"""Which replica gets a request, and when: routes, queues, the choice of a replica, and the breakers."""
