"""Numbers that any code may report while a model computes.

A run receives what is reported during training, an evaluation what is reported during it. Trials (a dry run, a loss
computed twice to find its scale) receive nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .errors import ConfigError
from .host_copy import HostCopy
from .notices import note_once
from .tree import read

# Names that log lines already have.
RESERVED_NAMES = frozenset(
    {"loss", "grad_norm", "learning_rate", "epoch", "step", "total_flos", "num_input_tokens_seen"}
)

# Numbers that are kept before they are added up: they need little memory, and reading so many at once is cheap.
MAX_PENDING = 512

Number = float | int | Tensor
NumberOrParts = Number | tuple[Tensor, ...]  # several tensors: their sum
TrackedNumber = tuple[str, NumberOrParts, Number]  # name, value, weight
Totals = dict[str, tuple[float, float]]  # sum and weight by name
Gather = Callable[[Totals], list[Totals]]  # one of each process


class TrackedNumbers:
    """Weighted means by name. Held numbers count once they are committed, as the losses of a step do.

    >>> tracked = TrackedNumbers()
    >>> tracked.add("kl", 1.0, weight=3), tracked.add("kl", 5.0)
    (None, None)
    >>> tracked.drain()
    {'kl': 2.0}
    """

    def __init__(self) -> None:
        self.held: list[TrackedNumber] = []  # of the current step
        self._pending: list[TrackedNumber] = []  # of earlier steps
        self._leaving: list[HostCopy] = []  # those before the pending ones, on their way to the host
        self._known: set[str] = set()
        self._totals: dict[str, tuple[float, float]] = {}

    def add(self, name: str, value: Number, weight: Number = 1.0) -> None:
        """Add one number. Nothing waits for a device."""
        if name not in self._known:
            _check_name(name)
            self._known.add(name)
        plain = type(weight) is float or type(weight) is int  # nearly always
        self.held.append((name, _detach_number(name, value), weight if plain else _detach_number(name, weight)))

    def take_held(self) -> list[TrackedNumber]:
        """Return what is held, and hold nothing."""
        held, self.held = self.held, []
        return held

    def commit(
        self, losses: Mapping[str, NumberOrParts] | None = None, held: list[TrackedNumber] | None = None
    ) -> None:
        """Count what is held, or was `held` for the step, and before it the named losses of the step.

        These losses are our own: detached from their graph, and never written to.
        """
        if losses:
            if not self._known.issuperset(losses):
                for name in losses:
                    _check_name(name)
                self._known.update(losses)
            self._pending += [(name, loss, 1.0) for name, loss in losses.items()]
        self._pending += self.take_held() if held is None else held
        if len(self._pending) >= MAX_PENDING:
            self.begin_read()

    def begin_read(self) -> None:
        """Let a device copy to the host what is pending, without a wait; add up what was copied long before."""
        if self._pending:
            self._leaving.append(HostCopy(self._pending))
            self._pending = []
            self._add_up(but=0 if self._leaving[-1].has_arrived else 2)

    def drain(self, gather: Gather = lambda own: [own]) -> dict[str, float]:
        """Return the mean of each name since the last time, over all processes."""
        totals = add_totals(gather(self.totals()))
        self._totals.clear()
        return {name: total / weights if weights else float("nan") for name, (total, weights) in totals.items()}

    def totals(self) -> Totals:
        """Return sum and weight by name, of all that was committed and not drained yet."""
        self.commit()
        self.begin_read()
        self._add_up()
        return dict(self._totals)

    def restore(self, totals: Mapping[str, Any]) -> None:
        """Continue with the sums of a run that was saved between two logs."""
        self._totals = {name: (total, weight) for name, (total, weight) in totals.items()}

    def __bool__(self) -> bool:
        return bool(self.held or self._pending or self._leaving or self._totals)

    def _add_up(self, but: int = 0) -> None:
        """Add up what was copied, but for the last copies.

        One number is added after the other: the sum does not depend on when they are read.
        """
        while len(self._leaving) > but:
            self._add(self._leaving.pop(0).get())

    def _add(self, arrived: list[TrackedNumber]) -> None:
        names = [name for name, _, _ in arrived]
        values = _as_floats([value for _, value, _ in arrived])
        weights = _as_floats([weight for _, _, weight in arrived])
        totals = self._totals
        for name, value, weight in zip(names, values, weights, strict=True):
            total, before = totals.get(name, (0.0, 0.0))
            totals[name] = (total + value * weight, before + weight)


def add_totals(totals: Iterable[Totals]) -> Totals:
    """Add up sums and weights by name. A name that one process has is in the result of all.

    >>> add_totals([{"kl": (1.0, 1.0)}, {"kl": (3.0, 1.0), "gate": (0.5, 1.0)}])
    {'kl': (4.0, 2.0), 'gate': (0.5, 1.0)}
    """
    added: Totals = {}
    for one in totals:
        for name, (total, weight) in one.items():
            before = added.get(name, (0.0, 0.0))
            added[name] = (before[0] + total, before[1] + weight)
    return added


_listeners: list[TrackedNumbers | None] = []


@contextmanager
def collect_numbers(tracked: TrackedNumbers | None) -> Iterator[None]:
    """Send what is reported inside the block to `tracked`; None drops it silently."""
    _listeners.append(tracked)
    try:
        yield
    finally:
        _listeners.pop()


def is_collecting() -> bool:
    """Return whether reported numbers are collected now."""
    return bool(_listeners) and _listeners[-1] is not None


def track(name: str, value: Number, weight: Number = 1.0) -> None:
    """Log a number with the next log line: a weighted mean over micro-batches, processes and steps.

    It may be called from anywhere while a trainer trains or evaluates, also in a model's `forward`. What is reported
    during an evaluation is among its metrics, as `eval_…`.

    Args:
        name: The key in the logs.
        value: One number; the call does not wait for a tensor.
        weight: How much it counts, such as the number of rows or tokens it is a mean of.

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
    # A checkpointed layer is computed a second time, inside the backward pass: that is not counted again.
    if listener is not None and torch._C._current_graph_task_id() == -1:
        listener.add(name, value, weight)


def _detach_number(name: str, number: Number) -> Number:
    """Return a number as it is now: the tensor may be written to later."""
    if type(number) is float or type(number) is int:
        return float(number)
    if isinstance(number, Tensor):
        if number.is_cpu and number.dim() == 0:  # nearly always
            return float(read(number))
        if number.numel() != 1:
            raise ConfigError(
                what=f"track({name!r}, ...) was given {number.numel()} numbers, of shape {tuple(number.shape)}",
                why="a log line has one number for each name",
                fix="track its mean, with weight= the number of values",
            )
        own = number.detach().reshape(())
        return float(read(own)) if own.is_cpu else own.clone()
    try:
        return float(number)
    except (TypeError, ValueError):
        raise ConfigError(
            what=f"track({name!r}, ...) was given {number!r}, a {type(number).__name__}",
            why="only numbers have a mean",
            fix="track a number or a tensor with one element; text can be logged with trainer.log",
        ) from None


def _as_floats(numbers: Sequence[NumberOrParts]) -> list[float]:
    """Convert all numbers to floats, with one read per device and type."""
    if not any(isinstance(number, (Tensor, tuple)) for number in numbers):
        return list(numbers)  # type: ignore[arg-type]
    parts = [number if isinstance(number, tuple) else (number,) for number in numbers]
    values = iter(_read_alike([part for each in parts for part in each]))
    return [sum(next(values) for _ in each) for each in parts]


def _read_alike(numbers: list[Any]) -> list[float]:
    alike: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for place, number in enumerate(numbers):
        if isinstance(number, Tensor):
            alike.setdefault((number.dtype, number.device), []).append(place)
    for places in alike.values():
        values = torch.stack([numbers[place] for place in places]).tolist()
        for place, value in zip(places, values, strict=True):
            numbers[place] = float(value)
    return numbers


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name or name in RESERVED_NAMES:
        raise ConfigError(
            what=f"{name!r} cannot be the name of a tracked number, or of one of several losses",
            why="log lines already have a number of that name" if name in RESERVED_NAMES else "names are strings",
            fix=f"choose another name, such as 'my_{name}'" if name in RESERVED_NAMES else "choose a name",
        )
