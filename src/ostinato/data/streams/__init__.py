"""Iterable data sets: which process reads which rows, and the position in a stream."""
