"""Looking at runs through their journals: one page of a run, several runs compared.

Reads `events.jsonl` and nothing else, and knows nothing of trainers.
"""
