"""Evaluate and predict: the loop, one step of it, the metrics it computes, the rows it keeps."""
