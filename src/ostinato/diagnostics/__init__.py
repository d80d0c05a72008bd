"""Explain a batch, plan a run, try it out, and name the mistakes behind exceptions."""
