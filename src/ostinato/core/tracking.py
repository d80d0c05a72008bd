"""Numbers that anybody may report while a model computes, from wherever the computing is done.

A run hears what is reported during training, an evaluation what is reported during it. What only tries something out
(a rehearsal, a loss computed twice to learn its scale) hears nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .errors import ConfigError
from .notices import note_once

# Names that a log line has anyway.
TAKEN = frozenset({"loss", "grad_norm", "learning_rate", "epoch", "step", "total_flos", "num_input_tokens_seen"})

Number = float | int | Tensor
Exchange = Callable[[dict[str, tuple[float, float]]], dict[str, tuple[float, float]]]


class Tracked:
    """Weighted means by name. What is held counts once it is committed, as the losses of a step do.

    >>> tracked = Tracked()
    >>> tracked.add("kl", 1.0, weight=3), tracked.add("kl", 5.0)
    (None, None)
    >>> tracked.drain()
    {'kl': 2.0}
    """

    def __init__(self) -> None:
        self.held: list[tuple[str, Number, Number]] = []  # of the step that is being taken
        self._totals: dict[str, tuple[Number, Number]] = {}

    def add(self, name: str, value: Number, weight: Number = 1.0) -> None:
        """Take in one number. Nothing waits for a device: sums are made where the numbers are."""
        if name not in self._totals:
            _check_name(name)
        self.held.append((name, _summable(name, value), _summable(name, weight)))

    def commit(self) -> None:
        """Let what is held count."""
        for name, value, weight in self.held:
            total, weights = self._totals.get(name, (0.0, 0.0))
            self._totals[name] = (total + value * weight, weights + weight)
        self.held.clear()

    def reject(self) -> None:
        """Forget what is held: the step it belongs to was not taken."""
        self.held.clear()

    def drain(self, exchange: Exchange = lambda own: own) -> dict[str, float]:
        """The mean of each name since the last time, over all processes."""
        totals = exchange(self.totals())
        self._totals.clear()
        return {name: total / weights if weights else float("nan") for name, (total, weights) in totals.items()}

    def totals(self) -> dict[str, tuple[float, float]]:
        """Sum and weight by name, of all that was committed and not drained yet."""
        self.commit()
        return {name: (float(total), float(weight)) for name, (total, weight) in self._totals.items()}

    def restore(self, totals: Mapping[str, Any]) -> None:
        """Go on with the sums of a run that was saved in the middle."""
        self._totals = {name: (total, weight) for name, (total, weight) in totals.items()}

    def __bool__(self) -> bool:
        return bool(self.held or self._totals)


_listeners: list[Tracked | None] = []


@contextmanager
def hearing(tracked: Tracked | None) -> Iterator[None]:
    """While entered, this is who hears what is reported; None: nobody, and nobody is missed."""
    _listeners.append(tracked)
    try:
        yield
    finally:
        _listeners.pop()


def is_heard() -> bool:
    """Whether what is computed now counts."""
    return bool(_listeners) and _listeners[-1] is not None


def track(name: str, value: Number, weight: Number = 1.0) -> None:
    """Log a number of your own with the next log line: a weighted mean over micro-batches, processes and steps.

    It may be called from anywhere while a trainer trains or evaluates, also in a model's `forward`. What is reported
    during an evaluation is among its metrics, as `eval_…`.

    Args:
        name: the key in the logs.
        value: one number; a tensor is not waited for.
        weight: how much it counts, such as the number of rows or tokens it is a mean of.

    ```python
    class Model(torch.nn.Module):
        def forward(self, x, labels=None):
            ...
            ostinato.track("gate_entropy", entropy, weight=len(x))
    ```
    """
    if not _listeners:
        note_once(f"track({name!r}, ...) has no effect while nothing is trained or evaluated")
        return
    listener = _listeners[-1]
    # A checkpointed layer is computed a second time, inside the backward pass: that is not news.
    if listener is not None and torch._C._current_graph_task_id() == -1:
        listener.add(name, value, weight)


def _summable(name: str, number: Number) -> Number:
    if isinstance(number, Tensor):
        if number.numel() != 1:
            raise ConfigError(
                what=f"track({name!r}, ...) was given {number.numel()} numbers, of shape {tuple(number.shape)}",
                why="a log line has one number for each name",
                fix="track its mean, with weight= the number of values",
            )
        number = number.detach().reshape(())
        return number if number.device.type == "mps" else number.double()
    return float(number)


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name or name in TAKEN:
        raise ConfigError(
            what=f"{name!r} cannot be the name of a tracked number",
            why="log lines have a number of that name already" if name in TAKEN else "names are strings",
            fix="choose another name",
        )
