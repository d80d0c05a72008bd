"""The outside world. Every library here is optional, and imported where it is used."""
