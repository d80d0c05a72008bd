"""The rows that an evaluation keeps: in memory while they are few, otherwise in a file that acts as an array."""
