"""Arguments for checkpoints and for uploads to the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.choices import HubStrategy, SaveStrategy
from ..argument import Range, argument


@dataclass
class CheckpointArguments:
    """When checkpoints are written, and what they contain."""

    save_only_model: bool = argument(
        False, help="Save only the weights: smaller checkpoints, from which a run cannot be resumed.", on_resume=None
    )
    save_strategy: SaveStrategy | str = argument(
        "steps",
        help="Save never (no), every save_steps (steps), after each epoch (epoch) or after each improvement (best).",
        choices=SaveStrategy,
        on_resume=None,
    )
    save_steps: float = argument(
        500,
        help="Steps between two checkpoints. Below 1: a fraction of all steps.",
        number=Range(finite=True),
        allow_none=True,
        on_resume=None,
    )
    save_on_each_node: bool = argument(
        False, help="Write checkpoints on every machine. Not for machines that share a disk.", on_resume=None
    )
    save_total_limit: int | None = argument(
        None,
        help="Number of checkpoints to keep: the oldest are deleted, the best is kept. Default: keep all.",
        number=Range(whole=True),
        on_resume=None,
    )
    enable_jit_checkpoint: bool = argument(
        False,
        help="On SIGTERM save a checkpoint, also with save_strategy='no', and return from train().",
        on_resume=None,
    )


@dataclass
class HubArguments:
    """Uploads to the Hugging Face hub."""

    push_to_hub: bool = argument(False, help="Upload the model to the hub whenever it is saved.", on_resume=None)
    hub_token: str | None = argument(
        None,
        help="Token for uploads. Default: the one of `hf auth login`.",
        repr=False,  # a secret: a subclass's generated repr must not print it either
        on_resume=None,
    )
    hub_private_repo: bool | None = argument(
        None, help="Whether a newly created repository is private. Default: the setting of its owner.", on_resume=None
    )
    hub_model_id: str | None = argument(
        None, help="Repository to upload to, as `owner/name`. Default: the name of output_dir.", on_resume=None
    )
    hub_strategy: HubStrategy | str = argument(
        "every_save",
        help="What is uploaded, and when: end, every_save, checkpoint (with the state to resume), all_checkpoints.",
        choices=HubStrategy,
        on_resume=None,
    )
    hub_always_push: bool = argument(
        False, help="Start an upload even if the previous one has not finished.", on_resume=None
    )
    hub_revision: str | None = argument(None, help="Branch, tag or commit to upload to.", on_resume=None)
