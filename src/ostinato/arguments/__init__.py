"""What was asked (`TrainingArguments`), whether it can be done (`check`), and what each part is told (`plan`)."""
