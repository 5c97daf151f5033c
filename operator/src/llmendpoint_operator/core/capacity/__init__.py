"""Whether a revision's model fits its accelerators: the condition CapacityFits. Pure; llmendpoint_fit has the
formulas.

| module | what it knows |
|---|---|
| findings | what is known of the model |
| inspection | the one-shot Job that reads a model on a claim |
| outlook | the condition, and `status.capacity` |
"""
