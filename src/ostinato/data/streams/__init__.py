"""Iterable data sets: which process reads which rows, and where a stream stands."""
