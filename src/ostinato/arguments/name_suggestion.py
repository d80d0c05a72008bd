"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Names in other libraries that are too different from ours to be found by similarity.
_OTHER_LIBRARY_NAMES = {
    "batch_size": "per_device_train_batch_size",
    "train_batch_size": "per_device_train_batch_size",
    "per_device_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "epochs": "num_train_epochs",
    "num_epochs": "num_train_epochs",
    "max_epochs": "num_train_epochs",
    "lr": "learning_rate",
    "gradient_clip_val": "max_grad_norm",
    "accumulate_grad_batches": "gradient_accumulation_steps",
    "grad_accum_steps": "gradient_accumulation_steps",
    "precision": "bf16",
    "optimizer": "optim",
    "scheduler": "lr_scheduler_type",
    "num_workers": "dataloader_num_workers",
    "device": "use_cpu",
    "val_check_interval": "eval_steps",
    "log_every_n_steps": "logging_steps",
}


def suggest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that was probably meant, or None.

    >>> (
    ...     suggest_name("learnig_rate", ["learning_rate", "seed"]),
    ...     suggest_name("epochs", ["num_train_epochs"]),
    ...     suggest_name("x", ["y"]),
    ... )
    ('learning_rate', 'num_train_epochs', None)
    """
    known, lower = list(names), name.lower()
    if _OTHER_LIBRARY_NAMES.get(lower) in known:
        return _OTHER_LIBRARY_NAMES[lower]
    near = difflib.get_close_matches(lower, known, n=1)
    return near[0] if near else None
