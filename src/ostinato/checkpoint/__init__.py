"""Checkpoints: directories that appear whole or not at all, and that run no code when they are read.

Import from the modules:

- single files: `disk` (operations that survive a power cut), `io` (bounded reading and writing), `tensor_file` (the
  format of tensors), `file_names`;
- whole directories: `atomic`, `verify` (intact checkpoints), `retention` (which exist, which are deleted), `space`
  (free space on the disk), `save_errors` (a disk that is full);
- contents: `weights` (the model), `tensors` (nested state), `training_state` (the parts of a training run),
  `save_parts`, `callback_tensors`, `intercept_save`;
- saves in the background: `snapshot`, `background`;
- layouts: `layouts` (one interface to our layout and that of transformers), `transformers/` (`detect`, `read`,
  `write`, `unpickle`, `convert`);
- the directory of a run: `run_directory`, `lock`, `lock_holder`, `identity`.

Modules load on use, so that `atomic` can be used without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import callback_tensors, file_names, layouts, run_directory, save_parts
else:
    __getattr__ = load_on_use(__name__)
