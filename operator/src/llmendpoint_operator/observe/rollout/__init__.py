"""The inputs of a rollout's decisions: live figures, answers to prompts, and Events of waiting pods."""
