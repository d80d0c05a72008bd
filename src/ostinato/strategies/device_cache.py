"""The memory that torch keeps on a device for its next tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def empty_cache(device: torch.device) -> None:
    """Return unused memory to the device; a CPU keeps none.

    >>> empty_cache(torch.device("cpu"))
    """
    release: Callable[[], Any] | None = getattr(torch.get_device_module(device), "empty_cache", None)
    if release is not None:
        release()
