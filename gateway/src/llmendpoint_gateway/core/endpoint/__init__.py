"""What is known of endpoints: their objects, names and settings, and their replicas' loads."""
