"""Arguments for checkpoints and for uploads to the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.choices import HubStrategy, SaveStrategy


@dataclass
class CheckpointArguments:
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


@dataclass
class HubArguments:
    """What is uploaded to the Hugging Face hub."""

    push_to_hub: bool = field(default=False, metadata={"help": "Upload the model to the hub whenever it is saved."})
    hub_token: str | None = field(
        default=None,
        repr=False,  # a secret: a subclass's generated repr must not print it either
        metadata={"help": "The token to upload with. Not given: the one of `hf auth login`."},
    )
    hub_private_repo: bool | None = field(
        default=None, metadata={"help": "Make a newly created repository private. Not given: what its owner prefers."}
    )
    hub_model_id: str | None = field(
        default=None,
        metadata={"help": "The repository to upload to, `owner/name`. Not given: named after output_dir."},
    )
    hub_strategy: HubStrategy | str = field(
        default="every_save",
        metadata={"help": "When, and what: end, every_save, checkpoint (with the state to resume), all_checkpoints."},
    )
    hub_always_push: bool = field(
        default=False, metadata={"help": "Start an upload even when the one before has not finished."}
    )
    hub_revision: str | None = field(default=None, metadata={"help": "The branch, tag or commit to upload to."})
