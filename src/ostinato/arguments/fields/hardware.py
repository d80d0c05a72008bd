"""Arguments for number formats, memory, devices and processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class PrecisionArguments:
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


@dataclass
class MemoryArguments:
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


@dataclass
class DeviceArguments:
    """On what hardware, and through which launcher's settings."""

    use_cpu: bool = field(default=False, metadata={"help": "Stay on the CPU even where there is a GPU."})
    accelerator_config: dict | str | None = field(
        default=None,
        metadata={"help": "Settings in the words of accelerate, as JSON or a JSON file; see AcceleratorConfig."},
    )
    parallelism_config: Any = field(
        default=None, metadata={"help": "How to split the model over devices, as accelerate's ParallelismConfig."}
    )


@dataclass
class ParallelismArguments:
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
