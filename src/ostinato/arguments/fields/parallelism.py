"""How several processes work on one model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Parallel:
    """How several processes work on one model."""

    ddp_find_unused_parameters: bool | None = field(
        default=None,
        metadata={"help": "Look for weights that got no gradient in each backward; DDP fails on them else."},
    )
    ddp_bucket_cap_mb: int | None = field(
        default=None, metadata={"help": "Megabytes of gradients that DDP exchanges in one message."}
    )
    ddp_broadcast_buffers: bool | None = field(
        default=None, metadata={"help": "Copy the first process's buffers (batch norm) to all before every forward."}
    )
    ddp_static_graph: bool | None = field(
        default=None, metadata={"help": "Promise DDP that every step uses the same weights in the same way."}
    )
    ddp_backend: str | None = field(
        default=None,
        metadata={
            "help": "The library through which processes talk. Not given: nccl for GPUs, gloo for CPUs.",
            "choices": ["nccl", "gloo", "mpi", "xccl", "hccl", "cncl", "mccl"],
        },
    )
    ddp_timeout: int = field(
        default=1800, metadata={"help": "Seconds a process waits for the others before it gives up."}
    )
    fsdp: str | None = field(
        default=None,
        metadata={"help": "Split weights, gradients and optimizer state over processes.", "nargs": "?", "const": True},
    )
    fsdp_config: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "How to split them, as JSON or a JSON file."}
    )
    deepspeed: dict | str | None = field(
        default=None, metadata={"help": "A DeepSpeed configuration, as JSON or a JSON file."}
    )
