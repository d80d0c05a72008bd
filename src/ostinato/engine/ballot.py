"""What the processes tell one another in every step: a few numbers of each, in one exchange.

The exchange begins as soon as the batches of a step are read, and ends beside the computation: the host waits where a
number is needed, which is after the forward, unless the forward itself takes the number of targets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

from ..core.notices import note_once
from ..core.protocols import Exchange

VOTE_EVERY = 10  # steps, where nothing has to be exchanged


class Exchanging(Protocol):
    """A strategy, as numbers are exchanged with it."""

    def exchange(self, numbers: Sequence[float]) -> Exchange: ...


@dataclass
class Vote:
    """The numbers of one process."""

    weight: float = 0.0  # of all its micro-batches: targets, or rows
    each: float = 0.0  # the weight of every micro-batch, if all have the same; 0: they differ, or may differ
    has_classes: bool = False  # some labels are classes, any of which may be ignored
    targets: float = 0.0
    has_count: bool = True  # the number of targets is known
    tokens: float = 0
    micro_batches: int = 0
    has_rows: bool = True
    bad_rows: int = 0  # that could not be read
    stop: int = 0  # the signal that was received, or 1 if a stop was requested without one
    searches: bool = False  # some weights had no part in the loss


@dataclass
class Ballot:
    """The votes of one step after another.

    Where every row has one label, or none, the weights of the other processes are assumed to be what they were, so
    that no process has to wait for them. If labels are classes, which may be ignored, a vote beside the computation
    shows whether that was right, and gradients are corrected; without classes, most steps have no vote. Once a process
    had another weight, each step has a vote, and it is waited for.
    """

    strategy: Exchanging
    processes: int  # with rows of their own
    copies: int = 1  # the processes that compute the same rows
    averages: bool = True  # gradients are divided by the weight of all processes
    needs_every_step: bool = False  # more than weights is exchanged
    find_stop: Callable[[], int] = lambda: 0
    finds_unused: Callable[[], bool] = lambda: False  # whether weights without a part in the loss were found
    each: float | None = None  # the weight of every micro-batch of every process; 0: not known; None: no vote yet
    is_due: bool = True  # this step has a vote
    _assumed: float | None = None  # the weight of this step
    _is_sure: bool = False  # there are no classes
    _has_count: bool = True
    _is_full: bool = False
    _deviates: bool = False  # this process has found another weight in a step without a vote
    _exchange: Exchange | None = None
    _votes: list[Vote] | None = None

    def begin(self, step: int, micro_batches: int, *, is_full: bool) -> None:
        """Begin a step: nothing is exchanged yet. `is_full`: every process has as many rows in each micro-batch."""
        if self.is_cast and self._is_full:
            self._learn()
        self._exchange = self._votes = None
        self._is_full, self._assumed = is_full, None
        if self.each and is_full:
            self._assumed = self.each * micro_batches * self.processes
        is_sure = self._assumed is not None and self._is_sure and not self.needs_every_step
        self.is_due = not is_sure or (step + 1) % VOTE_EVERY == 0

    def _learn(self) -> None:
        """Learn from the votes on a step what to assume of the next ones."""
        found = {vote.each for vote in self.votes}
        is_known = len(found) == 1 and found <= {self.each if self.each is not None else min(found)}
        self.each = found.pop() if is_known else 0.0
        self._is_sure = not any(vote.has_classes for vote in self.votes)
        self._has_count = all(vote.has_count for vote in self.votes)

    @property
    def is_cast(self) -> bool:
        """Whether this process has voted in this step."""
        return self._exchange is not None

    def cast(self, vote: Vote) -> None:
        """Send the numbers of this process to the others. Nobody waits."""
        vote.stop, vote.searches = self.find_stop(), self.finds_unused()
        if self._deviates:
            vote.each = 0.0
        # In the order of the fields; `astuple` would copy each, in every step.
        self._exchange = self.strategy.exchange([float(number) for number in vars(vote).values()])

    @property
    def votes(self) -> list[Vote]:
        """The votes of all processes, which are waited for."""
        if self._votes is None:
            assert self._exchange is not None, "no vote was cast"
            self._votes = [Vote(*numbers) for numbers in self._exchange.get()]  # pyright: ignore[reportArgumentType]
        return self._votes

    def compare(self, weights: Sequence[float]) -> None:
        """Note whether the weights of this process are as assumed, in a step without a vote."""
        if any(weight != self.each for weight in weights) and not self._deviates:
            self._deviates = True
            note_once(
                f"a batch has the weight {min(weights):g} and not {self.each:g}, as labels or rows are missing: the "
                f"gradient of up to {VOTE_EVERY} steps is scaled as if it had not; then processes compare every step"
            )

    def find_correction(self) -> float:
        """Return the number to multiply gradients with, as the weight of the step was not as assumed."""
        if self._assumed is None or not self.is_cast or not self.averages:
            return 1.0
        weight = self._add_up([vote.weight for vote in self.votes])
        return self._assumed / weight if weight else 1.0

    def add_weights(self) -> float:
        """Return the weight of the whole step."""
        return self._add_up([vote.weight for vote in self.votes]) if self._assumed is None else self._assumed

    def add_tokens(self) -> int:
        """Return the number of input tokens of the whole step."""
        return int(self._add_up([vote.tokens for vote in self.votes]))

    def add_targets(self) -> int | None:
        """Return the number of targets of the whole step; None if a process does not know its own."""
        if self._assumed is not None:
            return int(self._assumed) if self._has_count else None
        is_known = all(vote.has_count for vote in self.votes)
        return int(self._add_up([vote.targets for vote in self.votes])) if is_known else None

    def _add_up(self, numbers: list[float]) -> float:
        return sum(numbers) / self.copies


@dataclass
class LateShare:
    """The part of a micro-batch in the loss of its step, which may have to be waited for."""

    divisors: Divisors
    index: int

    @property
    def divisor(self) -> float:
        return self.divisors[self.index]

    @property
    def weighs_nothing(self) -> bool:
        return not self.divisors.weights[self.index]


class Divisors(Sequence[float]):
    """The numbers that turn the mean of each micro-batch of a step into its share of the step.

    A divisor is the weight of the step, over all processes, by that of the micro-batch; it is infinite for one without
    weight. With `processes` of 1, gradients are not divided by the weight of all processes, but by that of this one.
    `add_weights` returns the weight of all, and may wait for other processes.

    >>> list(Divisors([3.0, 1.0, 0.0], 2, lambda: 6.0))
    [1.0, 3.0, inf]
    """

    def __init__(self, weights: list[float], processes: int, add_weights: Callable[[], float]) -> None:
        self.weights, self.processes, self._add_weights = weights, processes, add_weights

    def __len__(self) -> int:
        return len(self.weights)

    @overload
    def __getitem__(self, index: int) -> float: ...

    @overload
    def __getitem__(self, index: slice) -> list[float]: ...

    def __getitem__(self, index: int | slice) -> float | list[float]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        weight = self.weights[index]
        if not weight:
            return math.inf
        total = self._add_weights() if self.processes > 1 else sum(self.weights)
        return total / (weight * self.processes)

    def find_share(self, index: int) -> LateShare:
        """Return the part of a micro-batch. Nobody is waited for."""
        return LateShare(self, index)
