"""How a model's files reach an endpoint's pods: their names, who downloads them, when they are deleted."""
