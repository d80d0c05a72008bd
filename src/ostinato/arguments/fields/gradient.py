"""How a gradient is put together before it reaches the optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Batch:
    """How a gradient is put together before it reaches the optimizer."""

    gradient_accumulation_steps: int = field(
        default=1, metadata={"help": "Micro-batches whose gradients are added up before one optimizer step."}
    )
    average_tokens_across_devices: bool = field(
        default=True,
        metadata={"help": "Weigh every token alike over all processes, instead of every process alike."},
    )
    max_grad_norm: float = field(
        default=1.0, metadata={"help": "Gradients longer than this are shortened to it; 0 leaves them as they are."}
    )
    label_smoothing_factor: float = field(
        default=0.0, metadata={"help": "The share of probability that a target gives away to all other classes."}
    )
