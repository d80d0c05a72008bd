"""Checkpoints: directories that appear whole or not at all, and that run no code when they are read.

Import from the modules: `store` (whole directories), `tensors` (nested state), `weights` (the model), `retention`
(which ones there are, which ones go), `checkpointer` (the parts of a training run). This file imports nothing, so
that `store` can be used without torch.
"""
