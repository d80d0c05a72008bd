"""Checkpoints: directories that appear whole or not at all, and that run no code when they are read.

Import from the modules: `disk` (what outlasts a power cut), `store` (whole directories), `snapshot` and `saves`
(written while training goes on), `tensor_file` (the format of tensors), `refusals` (a disk that is full), `tensors`
(nested state), `weights` (the model), `retention` (which ones there are, which ones go), `checkpointer` (the parts of
a training run), `layouts` (ours and those of transformers behind one face: `foreign`, `importer`, `exporter`,
`torch_files`, `convert`), `run_home` (a run in its directory: `home`, `lock`, `identity`). This file imports nothing,
so that `store` can be used without torch.
"""
