"""`torch.compile` puts a model into another one; this is the way back."""

from __future__ import annotations

from typing import Any


def uncompiled(model: Any) -> Any:
    """The model inside of what `torch.compile(model)` returned; any other model is returned as it is.

    Its weights are the same objects, under names without `_orig_mod.` in front.
    """
    while (inner := getattr(model, "_orig_mod", None)) is not None:
        model = inner
    return model
