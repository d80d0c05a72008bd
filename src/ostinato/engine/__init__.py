"""The training loop and the order of its events. Nothing here knows how a part does its work."""
