"""How a model's files come to an endpoint's pods: what names them, who downloads them, when they are deleted."""
