"""Find the original model inside a compiled one: `torch.compile` wraps a model into another."""

from __future__ import annotations

from typing import Any


def get_uncompiled(model: Any) -> Any:
    """Return the model inside of what `torch.compile(model)` returned; return any other model as it is.

    Its weights are the same objects, under names without `_orig_mod.` in front.
    """
    while (inner := getattr(model, "_orig_mod", None)) is not None:
        model = inner
    return model
