"""The inputs of the condition CapacityFits: the model, from the hub or a Job, and the nodes' accelerators."""
