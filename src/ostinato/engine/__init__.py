"""The order of events. Nothing here knows how a part does its work."""
