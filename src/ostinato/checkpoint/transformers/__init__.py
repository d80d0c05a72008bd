"""Checkpoints of transformers: detect, read, write and convert them."""
