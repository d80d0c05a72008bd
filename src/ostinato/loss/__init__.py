"""The loss of a batch: its source, and its scale."""
