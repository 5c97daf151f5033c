"""Output tokens per second and time to the first token beside other engines: `make bench-engine`.

Each table is one model of random parameters, saved once in bf16. Every contender is a process of its own, and the peers
have Python environments of their own (environments.py). They answer the same kind of prompts in turn (A, B, C, A, …),
prompts that never repeat, so that a noisy machine spoils all alike and no prefix cache helps. Figures are medians;
ratios are medians of the ratios within a turn; prefill is included.
"""
