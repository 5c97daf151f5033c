"""What the gateway knows of endpoints: objects, names, settings, and the load of their replicas."""
