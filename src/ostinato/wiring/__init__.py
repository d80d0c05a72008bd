"""Bodies of Trainer: functions that take the trainer and join parts of several rooms."""
