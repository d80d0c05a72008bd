"""Arguments for number formats, memory, devices and processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..argument import DATA_PARALLEL_ONLY, USE_DATA_PARALLEL, Range, Unsupported, argument
from ..resume_rules import change_numbers, change_on_accelerators, keep_numbers

_NOT_SHARDED = Unsupported(why=DATA_PARALLEL_ONLY, fix=f"leave it out and {USE_DATA_PARALLEL}")


@dataclass
class PrecisionArguments:
    """Number formats."""

    bf16: bool = argument(
        False, help="Run forward and backward in bfloat16. The weights keep their format.", on_resume=change_numbers
    )
    fp16: bool = argument(
        False,
        help="Run forward and backward in float16, with loss scaling. Has no effect on a CPU.",
        on_resume=change_numbers,
    )
    bf16_full_eval: bool = argument(
        False, help="Evaluate with the whole model in bfloat16: half the memory, less precise metrics.", on_resume=None
    )
    fp16_full_eval: bool = argument(
        False, help="Evaluate with the whole model in float16: half the memory, less precise metrics.", on_resume=None
    )
    tf32: bool | None = argument(
        None,
        help="Let an Ampere or newer GPU multiply float32 matrices in TF32. Default: torch's default.",
        on_resume=change_on_accelerators,
    )


@dataclass
class MemoryArguments:
    """Memory use, compilation and changes to the model."""

    gradient_checkpointing: bool = argument(
        False,
        help="Recompute activations in backward instead of storing them: less memory, slower.",
        on_resume=keep_numbers,
    )
    gradient_checkpointing_kwargs: dict[str, Any] | str | None = argument(
        None,
        help="Arguments of gradient checkpointing, as JSON: '{\"use_reentrant\": false}'.",
        kind=dict,
        on_resume=None,
    )
    torch_compile: bool = argument(False, help="Compile the model with `torch.compile`.", on_resume=change_numbers)
    torch_compile_backend: str | None = argument(
        None, help="Backend of `torch.compile`. Setting it turns torch_compile on.", on_resume=None
    )
    torch_compile_mode: str | None = argument(
        None, help="Mode of `torch.compile`. Setting it turns torch_compile on.", on_resume=None
    )
    use_liger_kernel: bool = argument(
        False,
        help="Replace layers of the model by Liger's fused kernels, when training starts.",
        on_resume=change_numbers,
    )
    liger_kernel_config: dict[str, bool] | None = argument(
        None, help="Which of Liger's kernels are used. Default: those that Liger recommends.", on_resume=None
    )
    use_cache: bool = argument(
        False, help="Let the model return its key/value cache during training; seldom useful.", on_resume=None
    )
    neftune_noise_alpha: float | None = argument(
        None,
        help="Strength of the noise that NEFTune adds to embeddings in training. Default: none.",
        number=Range(),
        on_resume=change_numbers,
    )
    torch_empty_cache_steps: int | None = argument(
        None,
        help="Steps between two releases of unused device memory: less memory, slower. No effect on a CPU.",
        number=Range(minimum=1, whole=True),
        on_resume=None,
    )
    auto_find_batch_size: bool = argument(
        False,
        help="Go on with micro-batches a tenth smaller when memory runs out in training.",
        on_resume=None,
    )


@dataclass
class DeviceArguments:
    """Device and accelerate's settings."""

    use_cpu: bool = argument(False, help="Use the CPU even if there is a GPU.", on_resume=change_on_accelerators)
    accelerator_config: dict | str | None = argument(
        None, help="Settings of accelerate, as JSON or a JSON file; see AcceleratorConfig.", on_resume=None
    )
    parallelism_config: Any = argument(
        None,
        help="How many processes copy the model (dp_replicate_size) and divide it (dp_shard_size), as accelerate's "
        "ParallelismConfig or a dict.",
        on_resume=None,
    )


@dataclass
class ParallelismArguments:
    """Training with several processes."""

    ddp_find_unused_parameters: bool | None = argument(
        None,
        help="Let DDP search for weights without a gradient in each backward; False: it fails on them. "
        "Default: from the first step on in which there are any.",
        on_resume=None,
    )
    ddp_bucket_cap_mb: int | None = argument(
        None, help="Megabytes of gradients that DDP sends in one message.", on_resume=None
    )
    ddp_broadcast_buffers: bool | None = argument(
        None,
        help="Copy the buffers (batch norm) of the first process to all others before every forward.",
        on_resume=None,
    )
    ddp_static_graph: bool | None = argument(
        None, help="Tell DDP that every step uses the same weights in the same way.", on_resume=None
    )
    ddp_backend: str | None = argument(
        None,
        help="Communication backend. Default: nccl for GPUs, gloo for CPUs.",
        choices=("nccl", "gloo", "mpi", "xccl", "hccl", "cncl", "mccl"),
        on_resume=None,
    )
    ddp_timeout: int = argument(
        1800,
        help="Seconds that a process waits for the others before it fails.",
        number=Range(minimum=0),
        on_resume=None,
    )
    fsdp: str | None = argument(
        None,
        help="Divide weights, gradients and optimizer state among processes (FSDP2).",
        on_resume=None,
        nargs="?",
        const=True,
    )
    fsdp_config: dict[str, Any] | str | None = argument(
        None, help="Settings of fsdp, as JSON or a JSON file.", on_resume=None
    )
    deepspeed: dict | str | None = argument(
        None, help="A DeepSpeed configuration, as JSON or a JSON file.", unsupported=_NOT_SHARDED, on_resume=None
    )
