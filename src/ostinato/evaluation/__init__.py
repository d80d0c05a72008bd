"""Evaluation and prediction: the loop, one step of it, its metrics, and the rows it keeps."""
