"""What makes a run repeatable and resumable."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Repeat:
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
