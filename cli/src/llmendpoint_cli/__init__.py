"""`kubectl llm`: shows endpoints, and sends requests about rollouts to the operator. Two commands change a spec: `scale` and
`rollout undo`.

core/ decides what to show, ask and say. Everything else reads, writes and prints.
"""
