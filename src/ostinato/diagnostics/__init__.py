"""What will happen and what went wrong, in words: the journey of a batch, the plan of a run, mistakes by name."""
