"""`TrainingArguments`: declarations, checks, and the frozen settings that each part receives."""
