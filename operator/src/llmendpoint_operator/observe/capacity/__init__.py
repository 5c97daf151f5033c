"""What the condition CapacityFits depends on: the model, as the hub or a Job describes it, and the nodes' accelerators."""
