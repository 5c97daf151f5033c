"""Unit tests of the operator: LoRA adapters."""
