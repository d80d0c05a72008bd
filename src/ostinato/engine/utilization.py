"""The share of the devices' peak that a run uses: the model's own operations, for real tokens."""

from __future__ import annotations

from torch import nn

from ..arguments.settings import RunSettings
from ..core import accelerator
from ..core.device_peaks import find_device_peak
from ..core.protocols import Strategy
from .run import Run
from .run_summary import name_precision

_NUMBERS = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16"}


def find_peak(settings: RunSettings, model: nn.Module, strategy: Strategy) -> float | None:
    """Return the operations per second of all devices together; None if unknown, or if tokens are not counted."""
    if not settings.counts_tokens:
        return None
    peak = settings.peak_flops
    if peak is None and (name := accelerator.get_name(strategy.device)) is not None:
        precision = name_precision(settings, strategy.device, list(model.parameters()))
        in_float32 = "tf32" if accelerator.uses_tf32(strategy.device) else "fp32"
        peak = find_device_peak(name, _NUMBERS.get(precision, in_float32))
    return None if peak is None else peak * strategy.processes


def compute_utilization(model: nn.Module, run: Run, tokens_per_second: float) -> float | None:
    """Return the share of the devices' peak that the model's operations use (MFU); None if it is unknown.

    Recomputed layers and padding do not count as work of the model. Time spent waiting for data counts as time.
    """
    if run.options.peak_flops is None or run.updates.current is None:
        return None
    main_input = getattr(model, "main_input_name", "input_ids")
    per_token = run.meters.flops.count_per_token(run.updates.current.batches[-1], main_input)
    return None if per_token is None else per_token * tokens_per_second / run.options.peak_flops
