"""The check that rows of a batch are independent: only then can a batch be split without changing its gradient.

A loss that compares rows with one another (in-batch negatives), and layers that average over them (batch norm), give
another gradient for two halves than for the whole. Only a trial can show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..core.errors import ModelOutputError
from ..core.logged_numbers import collect_numbers
from ..core.protocols import Batch
from ..core.random import preserve_rng

ROWS_EACH = 2  # of the longest and of the shortest micro-batch: enough for rows to interact, and cheap
PADDING = {"labels": -100, "label_ids": -100}

Loss = Callable[[Batch], Tensor]


class RowsMeetError(ModelOutputError):
    """A model or a loss whose rows depend on one another."""


def check_row_independence(
    model: nn.Module,
    parts: Sequence[Batch],
    *,
    loss: Loss,
    weigh: Callable[[Batch], float],
    tolerance: float,
    pad_token_id: int = 0,
) -> None:
    """Raise if a model's gradient for two parts is not that of the whole, so that its batches cannot be split.

    Rows of the first and the last of `parts` are computed separately and, padded, together. Dropout is off, batch norm
    on; weights, buffers, gradients and random streams are left unchanged.
    """
    few = [_select_rows(parts[0], slice(0, ROWS_EACH)), _select_rows(parts[-1], slice(-ROWS_EACH, None))]
    whole = join_rows(few, pad_token_id)
    if whole is None:
        return  # shapes that cannot be joined here: there is nothing to compare
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with _disable_randomness(model), preserve_rng(), collect_numbers(None):
        weights = [weigh(part) for part in few]
        if not all(weights):
            return  # a part without a target has no mean
        apart = _compute_gradient(
            [(loss(dict(part)), w / sum(weights)) for part, w in zip(few, weights, strict=True)], parameters
        )
        together = _compute_gradient([(loss(dict(whole)), 1.0)], parameters)
    size = float(torch.linalg.vector_norm(together))
    distance = float(torch.linalg.vector_norm(apart - together))
    if distance > tolerance * size:
        raise RowsMeetError(
            what=f"split_by_length=True would change the gradient of {type(model).__name__}",
            why=f"the rows of a batch meet in it: the gradient of {sum(map(_count, few))} rows differs by "
            f"{distance / size:.1%} when they are cut in two{_name_suspect(model)}",
            fix="leave split_by_length out; train_sampling_strategy='group_by_length' saves padding without cutting",
        )


def join_rows(parts: Sequence[Batch], pad_token_id: int = 0) -> Batch | None:
    """Return one padded batch made of several; None if shapes differ in more than length."""
    whole: dict[str, Any] = {}
    for name, first in parts[0].items():
        values = [part[name] for part in parts]
        if not isinstance(first, Tensor) or first.dim() == 0:
            whole[name] = first
            continue
        if first.dim() > 1:
            width = max(value.shape[1] for value in values)
            filler = PADDING.get(name, pad_token_id if name.endswith("input_ids") else 0)
            values = [_pad(value, width, filler) for value in values]
        if len({value.shape[1:] for value in values}) > 1:
            return None
        whole[name] = torch.cat(values)
    return whole


def _pad(value: Tensor, width: int, filler: int) -> Tensor:
    missing = width - value.shape[1]
    return (
        value
        if not missing
        else torch.cat([value, value.new_full((value.shape[0], missing, *value.shape[2:]), filler)], 1)
    )


def _count(batch: Batch) -> int:
    return next((len(value) for value in batch.values() if isinstance(value, Tensor) and value.dim()), 0)


def _select_rows(batch: Batch, which: slice) -> Batch:
    count = _count(batch)
    return {
        name: value[which] if isinstance(value, Tensor) and value.dim() and len(value) == count else value
        for name, value in batch.items()
    }


def _compute_gradient(losses: Sequence[tuple[Tensor, float]], parameters: Sequence[nn.Parameter]) -> Tensor:
    total = sum(loss.float() * weight for loss, weight in losses)
    found = torch.autograd.grad(total, parameters, allow_unused=True)  # type: ignore[arg-type]
    return torch.cat([gradient.detach().float().flatten() for gradient in found if gradient is not None])


@contextmanager
def _disable_randomness(model: nn.Module) -> Iterator[None]:
    """Turn dropout off; layers that average over rows stay in training mode, and their statistics are restored."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    model.eval()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.train()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        for buffer, earlier in buffers:
            buffer.copy_(earlier)


def _name_suspect(model: nn.Module) -> str:
    names: Mapping[str, nn.Module] = dict(model.named_modules())
    norms = [name for name, module in names.items() if isinstance(module, _BatchNorm)]
    return f" (batch norm in {norms[0]})" if norms else " (a loss that compares rows with one another?)"
