"""Schedule-free optimizers: one set of weights to train with, and their average to evaluate and to save.

Such an optimizer has the methods `train` and `eval`, which exchange the weights of the model in place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


def has_modes(optimizer: Any) -> bool:
    """Return whether an optimizer has one set of weights to train with and another one to evaluate."""
    return callable(getattr(optimizer, "train", None)) and callable(getattr(optimizer, "eval", None))


def is_training(optimizer: Any) -> bool:
    """Return whether the model has the weights to train with.

    >>> is_training(None)
    False
    """
    return has_modes(optimizer) and any(group.get("train_mode", True) for group in optimizer.param_groups)


def end_training(optimizer: Any) -> None:
    """Give the model the weights to evaluate and to keep."""
    if has_modes(optimizer):
        optimizer.eval()


@contextmanager
def use_averaged_weights(optimizer: Any) -> Iterator[None]:
    """Give the model the weights to evaluate and to save, inside the block.

    Afterwards it has the very same weights as before: `eval` and `train` one after the other would round them.
    """
    if not is_training(optimizer):
        yield
        return
    originals = [(parameter, parameter.data) for parameter in _list_parameters(optimizer)]
    for parameter, data in originals:
        parameter.data = data.clone()
    try:
        optimizer.eval()
        yield
    finally:
        optimizer.train()
        for parameter, data in originals:
            parameter.data = data


def resolve_warmup(optimizer: Any, num_training_steps: int) -> None:
    """Turn a warmup that is given as a fraction of the run into a number of steps."""
    for group in optimizer.param_groups if has_modes(optimizer) else ():
        if 0 < group.get("warmup_steps", 0) < 1:
            group["warmup_steps"] = math.ceil(group["warmup_steps"] * num_training_steps)


def _list_parameters(optimizer: Any) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
