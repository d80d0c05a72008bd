"""What functions accept: the newer keywords of a model's forward and a `compute_loss`; the number of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn


def can_take_num_items(model: nn.Module) -> bool:
    """Return whether a model's forward accepts `num_items_in_batch`: it states so, or it accepts any keyword."""
    stated = getattr(model, "accepts_loss_kwargs", None)
    return _has_keyword(model.forward, "num_items_in_batch") if stated is None else bool(stated)


@dataclass(frozen=True)
class LossSignature:
    """The newer keywords that a `compute_loss` accepts; older overrides are still in use."""

    takes_num_items: bool
    takes_return_outputs: bool

    @classmethod
    def of(cls, compute_loss: Callable[..., Any]) -> LossSignature:
        return cls(_has_keyword(compute_loss, "num_items_in_batch"), _has_keyword(compute_loss, "return_outputs"))


def number_of_arguments(func: Callable[..., Any]) -> int:
    """Return the number of parameters of a function; those that a `partial` has set are not counted.

    Args:
        func: The function.

    Returns:
        The number of its parameters.

    >>> number_of_arguments(lambda first, second=0: None), number_of_arguments(partial(pow, 2))
    (2, 2)
    """
    if isinstance(func, partial):
        return len(inspect.signature(func.func).parameters) - len(func.args) - len(func.keywords)
    return len(inspect.signature(func).parameters)


def _has_keyword(function: Callable[..., Any], keyword: str) -> bool:
    parameters = inspect.signature(function).parameters
    return keyword in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())
