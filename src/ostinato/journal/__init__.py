"""The journal of a run: one line of JSON per event in `events.jsonl`."""
