"""Whether a model fits an accelerator, what would fit, and what it costs. The operator (`CapacityFits`) and the CLI
(`kubectl llm plan`) share this copy of the formulas. Standard library only. docs/concepts/sizing.md explains them."""
