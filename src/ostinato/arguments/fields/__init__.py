"""The declarations of the arguments of `TrainingArguments`: no behaviour, one module per subject.

A dataclass collects its fields from the last base to the first, so the order in which `TrainingArguments` lists these
groups, read from right to left, is the order in which arguments may be passed by position.
"""
