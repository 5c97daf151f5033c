"""Logits to tokens, in stages over arrays of a whole batch: what changes the logits, then weights, filter, draw.

A row's token depends on its logits, its parameters and its own noise, never on other rows. Each stage is either
elementwise or a sum of integers. The order of additions does not change such a sum, so the result does not depend on the
number of rows, nor on how a device splits the work.

Weights, filter and draw are one step of `sampler.py`, with two implementations that give the same tokens: `in_torch.py`, whose
stages are `weights.py`, `filters.py` and `draws.py`, and `in_kernel.py`, which is server/native/kernels/sampling.h.

What changes logits before they become weights (penalties, a bias, the mask of a grammar) is in `changes.py`, for the rows that
ask: `sampler.py` draws these rows from a copy. Log probabilities are of the logits before all stages: `logprobs.py`.
"""
