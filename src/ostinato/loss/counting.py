"""How much a batch weighs: the number of things its loss averages over."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..core.logged_numbers import hearing
from ..core.protocols import Batch
from ..core.random import undisturbed
from ..core.tree import first_dimension

IGNORED = -100


def count_targets(labels: Any, *, shifted: bool) -> Tensor | None:
    """The labels that are predicted; a causal model never predicts the first of a row."""
    if not isinstance(labels, Tensor):
        return None
    if shifted and labels.dim() > 1:
        labels = labels[..., 1:]
    return labels.ne(IGNORED).sum()


def weigh(batch: Any, *, shifted: bool, labels_are: str = "labels") -> float:
    """What a mean over this batch stands for: its targets, or its rows when it has no labels."""
    labels = batch.get(labels_are) if isinstance(batch, Mapping) else None
    targets = count_targets(labels, shifted=shifted)
    if targets is not None:
        return float(targets.item())
    rows = first_dimension(batch)
    return 1.0 if rows is None else float(rows)


def loss_shifts_labels(model: nn.Module) -> bool | None:
    """Whether the model's loss compares each position with the next label. None: it has to be tried."""
    kind = getattr(model, "loss_type", None)
    if kind is not None:
        return kind == "ForCausalLM"
    # Looked for, not asked for: a bare encoder of transformers would warn that it takes the loss of a language model.
    has_loss = inspect.getattr_static(model, "loss_function", vars(model).get("_modules", {}).get("loss_function"))
    return None if has_loss is not None else False


def observe_shift(model: nn.Module, batch: Batch) -> bool:
    """Find out by trying, leaving no trace: to a loss that shifts its labels, the first of a row is as good as none.

    A model that states no `loss_type` may still shift its labels (GPT-2 does). What the batch's own labels are does
    not matter, so that rows without any, or with a masked prompt, tell as much as others.
    """
    labels = batch.get("labels")
    if not isinstance(labels, Tensor) or labels.dim() < 2:
        return False
    nothing = torch.full_like(labels, IGNORED)
    first = nothing.clone()
    first[:, 0] = 0  # a class that every model has
    try:
        with trial(model) as attempt:
            without = attempt(lambda: _loss(model(**{**batch, "labels": nothing})))
            with_first = attempt(lambda: _loss(model(**{**batch, "labels": first})))
    except Exception:  # what fails here fails again when the loss is computed in earnest, and is explained there
        return False
    if without is None or with_first is None:
        return False
    return with_first == without or (math.isnan(with_first) and math.isnan(without))


@contextmanager
def trial(model: nn.Module) -> Iterator[Callable[[Callable[[], Any]], float | None]]:
    """Run losses without gradients, leaving no trace: streams are put back, and buffers are lent as copies.

    Copies, because a graph that is still to be walked backwards may hold the originals.
    """
    buffers = [(m, name, b) for m in model.modules() for name, b in m._buffers.items() if b is not None]
    for module, name, buffer in buffers:
        module._buffers[name] = buffer.clone()

    def attempt(function: Callable[[], Any]) -> float | None:
        with undisturbed(), hearing(None):
            loss = function()
        return None if loss is None else float(loss)

    try:
        with torch.no_grad():
            yield attempt
    finally:
        for module, name, buffer in buffers:
            module._buffers[name] = buffer


def _loss(outputs: Any) -> Any:
    return outputs.get("loss") if isinstance(outputs, Mapping) else outputs[0]
