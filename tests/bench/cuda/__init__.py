"""The engine on a CUDA device beside the device's own limits, and beside transformers in the same run."""
