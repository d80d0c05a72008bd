"""The names of the files of a checkpoint."""

from __future__ import annotations

PREFIX_CHECKPOINT_DIR = "checkpoint"
BEST_MODEL_NAME = "best-model"  # the best weights, where no checkpoint was due at their evaluation

MANIFEST_NAME = "MANIFEST.json"
TRAINER_STATE_NAME = "trainer_state.json"
RUN_NAME = "run.json"  # which run a checkpoint belongs to
LOCK_NAME = ".ostinato-lock.json"  # in the directory of a run, while it runs

# Structure and plain values; tensors are stored beside it in a file of the same stem, `.safetensors`.
OPTIMIZER_NAME = "optimizer.json"
SCHEDULER_NAME = "scheduler.json"
SCALER_NAME = "scaler.json"
LOOP_NAME = "loop.json"
CALLBACKS_NAME = "callbacks.json"  # of callbacks that keep tensors

TRAINING_ARGS_NAME = "training_args.bin"  # what transformers writes, a pickle: looked for by name, never opened
TRAINING_ARGS_JSON_NAME = "training_args.json"  # what we write

WEIGHTS_NAME = "model.safetensors"
WEIGHTS_INDEX_NAME = "model.safetensors.index.json"
ADAPTER_WEIGHTS_NAME = "adapter_model.safetensors"
ADAPTER_CONFIG_NAME = "adapter_config.json"
CONFIG_NAME = "config.json"


def is_plain_name(name: object) -> bool:
    """Return whether a name found in a file is that of a direct child, and so cannot lead out of its directory.

    >>> is_plain_name("model.safetensors"), is_plain_name("../model.safetensors")
    (True, False)
    """
    return (
        isinstance(name, str)
        and name not in ("", ".", "..")
        and not any(character in name for character in "/\\\0")
        and ":" not in name[1:2]  # a Windows drive
    )
