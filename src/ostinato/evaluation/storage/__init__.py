"""What an evaluation keeps: rows of predictions, in memory while they are few, in a file that is an array when not."""
