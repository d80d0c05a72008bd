"""How many frames a model's convolutions make of a recording, and masks that are longer than that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ostinato.logging import get_logger

from .audio import AudioInfo


def count_frames(config: Any, samples: int) -> int | None:
    """Return the number of frames; None for models of which it is not known.

    >>> from types import SimpleNamespace
    >>> count_frames(SimpleNamespace(conv_kernel=(10, 3), conv_stride=(5, 2)), 16000)
    1599
    """
    if getattr(config, "model_type", None) == "wav2vec2-bert":  # windows of 25 ms every 10 ms, joined in pairs
        return max(0, ((samples - 400) // 160 + 1) // 2)
    kernels, strides = getattr(config, "conv_kernel", None), getattr(config, "conv_stride", None)
    if not isinstance(kernels, list | tuple) or not isinstance(strides, list | tuple):
        return None
    for kernel, stride in zip(kernels, strides, strict=True):
        samples = (samples - kernel) // stride + 1
    return max(samples, 0)


def fit_masks(config: Any, headers: Iterable[AudioInfo | None], rate: int, longest: float) -> None:
    """Shorten the masks of a model's own SpecAugment to the shortest recording: longer ones are an error there.

    `longest` is how many seconds are taken of a recording at most.
    """
    if not getattr(config, "apply_spec_augment", False) or not getattr(config, "mask_time_prob", 0):
        return
    lengths = [int(min(info.seconds, longest) * rate) for info in headers if info is not None]
    frames = count_frames(config, min(lengths)) if lengths else None
    if frames is not None and frames <= config.mask_time_length:
        shorter = max(1, frames // 2)
        get_logger().info(
            f"mask_time_length is {shorter} instead of {config.mask_time_length}: "
            f"the shortest recording has {frames} frames"
        )
        config.mask_time_length = shorter
