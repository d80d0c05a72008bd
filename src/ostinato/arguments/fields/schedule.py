"""How the learning rate moves."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.choices import SchedulerType


@dataclass
class Schedule:
    """How the learning rate moves."""

    learning_rate: float = field(
        default=5e-5, metadata={"help": "The rate at the end of the warm-up: the highest one."}
    )
    lr_scheduler_type: SchedulerType | str = field(
        default="linear", metadata={"help": "The shape of the learning rate after the warm-up."}
    )
    lr_scheduler_kwargs: dict | str | None = field(
        default=None,
        metadata={"help": "Numbers the schedule takes beyond the usual ones, as JSON: '{\"num_cycles\": 2}'."},
    )
    warmup_steps: float = field(
        default=0,
        metadata={"help": "Steps over which the rate rises from 0. Below 1 it is a share of all steps."},
    )
