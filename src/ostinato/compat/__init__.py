"""Names that other code reaches for, as views on our own parts."""
