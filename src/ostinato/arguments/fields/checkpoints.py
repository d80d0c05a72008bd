"""When checkpoints are written, and what is in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.choices import SaveStrategy


@dataclass
class Save:
    """When checkpoints are written, and what is in them."""

    save_only_model: bool = field(
        default=False,
        metadata={"help": "Write the weights alone: smaller checkpoints, from which a run cannot be continued."},
    )
    save_strategy: SaveStrategy | str = field(
        default="steps",
        metadata={
            "help": "Save never (no), every save_steps (steps), after each epoch (epoch) or each improvement (best)."
        },
    )
    save_steps: float = field(
        default=500, metadata={"help": "Steps between two checkpoints. Below 1 it is a share of all steps."}
    )
    save_on_each_node: bool = field(
        default=False, metadata={"help": "Write checkpoints on every machine; not for machines that share a disk."}
    )
    save_total_limit: int | None = field(
        default=None, metadata={"help": "How many checkpoints to keep: the oldest go, the best stays. Not given: all."}
    )
    enable_jit_checkpoint: bool = field(
        default=False, metadata={"help": "Save at once when the machine asks the process to end (SIGTERM)."}
    )
