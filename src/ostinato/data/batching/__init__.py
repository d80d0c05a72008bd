"""Divide rows into batches: by count, by tokens, by length, or packed end to end."""
