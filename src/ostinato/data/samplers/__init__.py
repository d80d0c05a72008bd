"""Orders of rows, computed from the seed and the epoch."""
