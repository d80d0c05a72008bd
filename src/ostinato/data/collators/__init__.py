"""Collators: callables that turn a list of rows into a batch. One file per family."""
