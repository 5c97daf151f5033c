"""Checkpoints with quantized weights, read into one form a width.

A module for each format knows its tensors' names and layout, and nothing of models. `recognition.py` says which format a configuration
names; `checkpoint.py` reads a folder.
"""
