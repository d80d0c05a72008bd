"""Where a run writes, and how long it is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Run:
    """Where a run writes, and how long it is."""

    output_dir: str | None = field(
        default=None,
        metadata={"help": "The directory for all that a run writes. Not given: trainer_output."},
    )
    per_device_train_batch_size: int = field(
        default=8, metadata={"help": "Rows in one training micro-batch of one process."}
    )
    num_train_epochs: float = field(
        default=3.0,
        metadata={"help": "Passes over the training data; may end within one (2.5). Not read when max_steps is set."},
    )
    max_steps: int = field(
        default=-1,
        metadata={"help": "Optimizer steps to take, repeating the data when it runs out. -1 leaves it to the epochs."},
    )
