"""Liger's fused kernels in place of layers of a model."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..arguments.settings import RunSettings
from ..core.notices import note_once
from ..core.package_import import Package, import_from

_PACKAGE = Package("liger_kernel", "pip install liger-kernel")
_APPLY = "liger_kernel.transformers._apply_liger_kernel_to_instance"


def apply_liger_kernels(model: nn.Module, settings: RunSettings) -> None:
    """Replace layers of a model of transformers by Liger's kernels, if requested; adapters stay around them.

    Raises:
        MissingPackageError: liger-kernel is not installed.
    """
    if settings.liger_kernels is None:
        return
    apply = import_from(_APPLY, _PACKAGE, needed_by="use_liger_kernel=True")
    base = _find_base_model(model)
    if any(cls.__name__ == "PreTrainedModel" for cls in type(base).__mro__):
        apply(model=base, **settings.liger_kernels)
    else:
        note_once(f"use_liger_kernel has no effect: {type(base).__name__} is not a model of transformers")


def _find_base_model(model: nn.Module) -> Any:
    """Return the model inside of PEFT's adapters."""
    unwrap = getattr(model, "get_base_model", None)
    return unwrap() if callable(unwrap) else model
