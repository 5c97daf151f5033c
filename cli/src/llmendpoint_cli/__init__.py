"""`kubectl llm`: shows what endpoints do, and asks the operator for what rollouts need. It never edits a spec.

core/ decides what is shown, asked and said; everything else reads, writes and prints.
"""
