"""In which number format is computed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Precision:
    """In which number format is computed."""

    bf16: bool = field(
        default=False, metadata={"help": "Compute forward and backward in bfloat16; the weights stay as they are."}
    )
    fp16: bool = field(
        default=False,
        metadata={"help": "Compute forward and backward in float16, with a scaled loss. Has no effect on a CPU."},
    )
    bf16_full_eval: bool = field(
        default=False,
        metadata={"help": "Evaluate with the whole model in bfloat16: half the memory, coarser metrics."},
    )
    fp16_full_eval: bool = field(
        default=False, metadata={"help": "Evaluate with the whole model in float16: half the memory, coarser metrics."}
    )
    tf32: bool | None = field(
        default=None,
        metadata={"help": "Let an Ampere or newer GPU multiply float32 matrices in TF32. Not given: torch decides."},
    )
