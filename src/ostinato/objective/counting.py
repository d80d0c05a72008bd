"""How much a batch weighs: the number of things its loss averages over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

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


def weigh(batch: Any, *, shifted: bool) -> float:
    """What a mean over this batch stands for: its targets, or its rows when it has no labels."""
    labels = batch.get("labels") if isinstance(batch, Mapping) else None
    targets = count_targets(labels, shifted=shifted)
    if targets is not None:
        return float(targets.item())
    return float(first_dimension(batch) or 1)


def loss_shifts_labels(model: nn.Module) -> bool | None:
    """Whether the model's loss compares each position with the next label. None: it has to be tried."""
    kind = getattr(model, "loss_type", None)
    if kind is not None:
        return kind == "ForCausalLM"
    return None if getattr(model, "loss_function", None) is not None else False


def observe_shift(model: nn.Module, batch: Batch) -> bool:
    """Find out by trying, leaving no trace: the mean loss of a batch and its share of N reveal how many it averages.

    A model that states no `loss_type` may still shift its labels (GPT-2 does).
    """
    labels = batch.get("labels")
    if not isinstance(labels, Tensor) or labels.dim() < 2:
        return False
    assumed = count_targets(labels, shifted=False)
    shifted = count_targets(labels, shifted=True)
    assert assumed is not None and shifted is not None
    try:
        with trial(model) as attempt:
            mean = attempt(lambda: _loss(model(**batch)))
            share = attempt(lambda: _loss(model(**batch, num_items_in_batch=assumed.to(labels.device))))
    except Exception:  # what fails here fails again when the loss is computed in earnest, and is explained there
        return False
    if mean is None or share is None or not mean or mean == share:
        return False
    averaged_over = float(assumed) * share / mean
    return abs(averaged_over - float(shifted)) < abs(averaged_over - float(assumed))


@contextmanager
def trial(model: nn.Module) -> Iterator[Callable[[Callable[[], Any]], float | None]]:
    """Run losses without gradients, leaving no trace: streams are put back, and buffers are lent as copies.

    Copies, because a graph that is still to be walked backwards may hold the originals.
    """
    buffers = [(m, name, b) for m in model.modules() for name, b in m._buffers.items() if b is not None]
    for module, name, buffer in buffers:
        module._buffers[name] = buffer.clone()

    def attempt(function: Callable[[], Any]) -> float | None:
        with undisturbed():
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
