"""Whether a revision's model fits its accelerators: the condition CapacityFits. Pure; the formulas are llmendpoint_fit's.

| module | what it knows |
|---|---|
| findings | what is known of the model |
| inspection | the one-shot Job that reads a model on a claim |
| outlook | the condition, and what stands in the status |
"""
