"""An engine without a model, behind the real API: for tests, and to rehearse rollouts without a GPU.

The HTTP surface, the metrics, the drain and the exit codes are the server's own code; only the engine and the
tokenizer are replaced. Imports neither torch nor tokenizers: it starts in well under a second.
"""
