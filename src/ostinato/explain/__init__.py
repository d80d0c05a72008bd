"""What went wrong, in words: mistakes found before the first step, or named when they make a step fail."""
