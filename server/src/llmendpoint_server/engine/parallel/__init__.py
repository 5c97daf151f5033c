"""Tensor parallelism: one model divided over several processes, its ranks, each with an accelerator of its own."""
