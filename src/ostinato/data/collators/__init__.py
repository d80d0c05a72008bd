"""Rows become a batch. One file per family of collators; each is a callable that takes a list of rows."""
