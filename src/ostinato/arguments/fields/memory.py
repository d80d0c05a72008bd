"""What is traded between memory and speed, and what is changed inside the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Memory:
    """What is traded between memory and speed, and what is changed inside the model."""

    gradient_checkpointing: bool = field(
        default=False,
        metadata={"help": "Recompute activations in backward rather than keep them: less memory, slower."},
    )
    gradient_checkpointing_kwargs: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "How to recompute, as JSON: '{\"use_reentrant\": false}'."}
    )
    torch_compile: bool = field(default=False, metadata={"help": "Compile the model with `torch.compile`."})
    torch_compile_backend: str | None = field(
        default=None, metadata={"help": "Who compiles; naming one switches torch_compile on."}
    )
    torch_compile_mode: str | None = field(
        default=None, metadata={"help": "How hard the compiler tries; naming a mode switches torch_compile on."}
    )
    use_liger_kernel: bool = field(default=False, metadata={"help": "Replace layers by Liger's fused kernels."})
    liger_kernel_config: dict[str, bool] | None = field(
        default=None, metadata={"help": "Which of Liger's kernels to take; not given, those it recommends."}
    )
    use_cache: bool = field(
        default=False, metadata={"help": "Let the model return its key/value cache during training; seldom of use."}
    )
    neftune_noise_alpha: float | None = field(
        default=None,
        metadata={"help": "Strength of the noise NEFTune adds to embeddings in training; not given, none."},
    )
    torch_empty_cache_steps: int | None = field(
        default=None, metadata={"help": "Hand unused device memory back every so many steps: less memory, slower."}
    )
    auto_find_batch_size: bool = field(
        default=False, metadata={"help": "Start again with a smaller micro-batch when the device runs out of memory."}
    )
