"""What a rollout decides on: live figures, answers to prompts, and Events of pods that wait."""
