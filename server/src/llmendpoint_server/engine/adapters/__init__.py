"""LoRA adapters: reading them, their places on the device, and what they add to the linear layers of a step."""
