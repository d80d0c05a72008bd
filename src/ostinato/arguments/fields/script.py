"""What scripts ask of themselves; the trainer reads little of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.choices import DebugOption


@dataclass
class Script:
    """What scripts ask of themselves; the trainer reads little of it."""

    debug: str | list[DebugOption] = field(
        default="", metadata={"help": "Tools for hunting errors, separated by spaces: underflow_overflow."}
    )
    skip_memory_metrics: bool = field(
        default=True, metadata={"help": "Do not add memory use to the metrics; measuring it costs time."}
    )
    do_train: bool = field(default=False, metadata={"help": "For scripts: whether to train."})
    do_eval: bool = field(
        default=False, metadata={"help": "For scripts: whether to evaluate. Switched on by any eval_strategy but no."}
    )
    do_predict: bool = field(default=False, metadata={"help": "For scripts: whether to predict the test set."})
    resume_from_checkpoint: str | None = field(
        default=None, metadata={"help": "For scripts: the checkpoint directory to continue from."}
    )
    local_rank: int = field(
        default=-1, metadata={"help": "Kept for old launchers; the place of a process comes from its environment."}
    )
