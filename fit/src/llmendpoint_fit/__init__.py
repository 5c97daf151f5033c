"""Whether a model fits an accelerator, what would, and what it costs: the one copy of the formulas that the operator
(`CapacityFits`) and the CLI (`kubectl llm plan`) share. Standard library only. docs/concepts/sizing.md explains them."""
