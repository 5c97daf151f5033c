"""Kernels for CUDA in Triton: attention over pages, and what lies between a layer's products."""
