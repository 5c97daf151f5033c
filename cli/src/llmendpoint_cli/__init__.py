"""`kubectl llm`: shows what endpoints do, and asks the operator for what rollouts need. It edits a spec only to scale and to
undo.

core/ decides what is shown, asked and said; everything else reads, writes and prints.
"""
