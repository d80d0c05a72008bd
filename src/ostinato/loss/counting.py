"""The weight of a batch: the number of targets or rows that its loss averages over."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..core.logged_numbers import collect_numbers
from ..core.protocols import Batch
from ..core.random import preserve_rng
from ..core.tree import first_dimension

IGNORED = -100


def count_targets(labels: Any, *, shifted: bool) -> Tensor | None:
    """Return the number of labels that are predicted; a causal model never predicts the first of a row."""
    if not isinstance(labels, Tensor):
        return None
    if shifted and labels.dim() > 1:
        labels = labels[..., 1:]
    return labels.ne(IGNORED).sum()


def weigh(batch: Any, *, shifted: bool, labels_are: str = "labels") -> float:
    """Return the weight of a mean over this batch: its targets, or its rows if it has no labels."""
    labels = batch.get(labels_are) if isinstance(batch, Mapping) else None
    targets = count_targets(labels, shifted=shifted)
    if targets is not None:
        return float(targets.item())
    rows = first_dimension(batch)
    return 1.0 if rows is None else float(rows)


def find_classes(batch: Any, labels_are: str) -> Tensor | None:
    """Return the labels of a batch if they are classes, any of which may be ignored."""
    labels = batch.get(labels_are) if isinstance(batch, Mapping) else None
    return labels if isinstance(labels, Tensor) and not labels.is_floating_point() else None


def has_shifted_labels(model: nn.Module) -> bool | None:
    """Return whether the model's loss compares each position with the next label. None: it has to be tried."""
    kind = getattr(model, "loss_type", None)
    if kind is not None:
        return kind == "ForCausalLM"
    # Looked up statically: reading it on a bare encoder of transformers warns about a language-model loss.
    has_loss = inspect.getattr_static(model, "loss_function", vars(model).get("_modules", {}).get("loss_function"))
    return None if has_loss is not None else False


def observe_shift(model: nn.Module, batch: Batch) -> bool:
    """Determine by trial, without side effects, whether the loss shifts labels: it then ignores the first of a row.

    A model that states no `loss_type` may still shift its labels (GPT-2 does). The batch's own labels do not matter,
    so rows without any, or with a masked prompt, work as well as others.
    """
    labels = batch.get("labels")
    if not isinstance(labels, Tensor) or labels.dim() < 2:
        return False
    nothing = torch.full_like(labels, IGNORED)
    first = nothing.clone()
    first[:, 0] = 0  # a class that every model has
    try:
        with trial(model) as attempt:
            without = attempt(lambda: _read_loss(model(**{**batch, "labels": nothing})))
            with_first = attempt(lambda: _read_loss(model(**{**batch, "labels": first})))
    except Exception:  # a failure here occurs again when the loss is really computed, and is explained there
        return False
    if without is None or with_first is None:
        return False
    return with_first == without or (math.isnan(with_first) and math.isnan(without))


@contextmanager
def trial(model: nn.Module) -> Iterator[Callable[[Callable[[], Any]], float | None]]:
    """Run losses without gradients and side effects: random streams are restored, and buffers are replaced by copies.

    Copies, because a graph whose backward is still to come may hold the originals.
    """
    buffers = [(m, name, b) for m in model.modules() for name, b in m._buffers.items() if b is not None]
    for module, name, buffer in buffers:
        module._buffers[name] = buffer.clone()

    def attempt(function: Callable[[], Any]) -> float | None:
        with preserve_rng(), collect_numbers(None):
            loss = function()
        return None if loss is None else float(loss)

    try:
        with torch.no_grad():
            yield attempt
    finally:
        for module, name, buffer in buffers:
            module._buffers[name] = buffer


def _read_loss(outputs: Any) -> Any:
    return outputs.get("loss") if isinstance(outputs, Mapping) else outputs[0]
