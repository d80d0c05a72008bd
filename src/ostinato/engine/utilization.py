"""The share of the devices' peak that a run uses: the model's own operations, for real tokens."""

from __future__ import annotations

import torch

from ..arguments.settings import RunSettings
from ..core.device_peaks import known_peak
from .run import Run
from .run_host import RunHost
from .run_summary import precision_of

_NUMBERS = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16"}


def peak_of(trainer: RunHost) -> float | None:
    """Return the operations per second of all devices together; None if unknown, or if tokens are not counted."""
    settings, device = RunSettings.of(trainer.args), trainer.strategy.device
    if not settings.counts_tokens:
        return None
    peak = settings.peak_flops
    if peak is None and device.type == "cuda":
        precision = precision_of(trainer, list(trainer.model.parameters()))
        in_float32 = "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
        peak = known_peak(torch.cuda.get_device_name(device), _NUMBERS.get(precision, in_float32))
    return None if peak is None else peak * trainer.strategy.size


def utilization(trainer: RunHost, run: Run, tokens_per_second: float) -> float | None:
    """Return the share of the devices' peak that the model's operations use (MFU); None if it is unknown.

    Recomputed layers and padding do not count as work of the model. Time spent waiting for data counts as time.
    """
    if run.options.peak_flops is None or run.updates.current is None:
        return None
    main_input = getattr(trainer.model, "main_input_name", "input_ids")
    per_token = run.meters.flops.per_token(run.updates.current.batches[-1], main_input)
    return None if per_token is None else per_token * tokens_per_second / run.options.peak_flops
