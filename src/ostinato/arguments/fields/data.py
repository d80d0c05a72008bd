"""Arguments for reading data and for reproducing a run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class DataArguments:
    """How rows are read, ordered and cut into batches."""

    dataloader_drop_last: bool = field(
        default=False, metadata={"help": "Leave out the last batch of an epoch when it is not full."}
    )
    dataloader_num_workers: int = field(
        default=0,
        metadata={"help": "Processes that prepare batches in the background; 0 does it in the training one."},
    )
    dataloader_pin_memory: bool = field(
        default=True, metadata={"help": "Keep batches in memory the GPU copies from faster. Always off on a CPU."}
    )
    dataloader_persistent_workers: bool = field(
        default=False, metadata={"help": "Keep the workers between epochs: a faster start, more memory."}
    )
    dataloader_prefetch_factor: int | None = field(
        default=None, metadata={"help": "Batches every worker prepares in advance."}
    )
    dataloader_multiprocessing_context: str | None = field(
        default=None,
        metadata={
            "help": "How workers are started. Not given: as Python does.",
            "choices": ["fork", "spawn", "forkserver"],
        },
    )
    dataloader_in_order: bool = field(
        default=True,
        metadata={"help": "Take batches in their order; otherwise whichever worker is ready comes first."},
    )
    remove_unused_columns: bool = field(
        default=True, metadata={"help": "Drop the columns of a data set that the model's forward does not name."}
    )
    label_names: list[str] | None = field(
        default=None, metadata={"help": "The inputs that are labels. Not given: found in the model's signature."}
    )
    train_sampling_strategy: str = field(
        default="random",
        metadata={
            "help": "The order of training rows: shuffled, as stored, like lengths together, or batches of like cost.",
            "choices": ["random", "sequential", "group_by_length", "batch_rebalance"],
        },
    )
    length_column_name: str = field(
        default="length", metadata={"help": "The column with the length of each row, if there is one; saves counting."}
    )


@dataclass
class ReproducibilityArguments:
    """What makes a run repeatable and resumable."""

    ignore_data_skip: bool = field(
        default=False, metadata={"help": "When resuming, start the epoch's data afresh rather than where it was left."}
    )
    restore_callback_states_from_checkpoint: bool = field(
        default=False,
        metadata={"help": "Accepted for scripts that set it: callbacks always get the state they had back."},
    )
    full_determinism: bool = field(
        default=False,
        metadata={"help": "Use deterministic kernels only: slower, for hunting a difference of two runs."},
    )
    seed: int = field(default=42, metadata={"help": "Decides every random choice of a run."})
    data_seed: int | None = field(
        default=None, metadata={"help": "Decides the order of the training data alone. Not given: seed."}
    )
