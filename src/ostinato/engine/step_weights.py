"""The weights of the micro-batches of a step, and what the processes tell one another about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..core.host_copy import read_numbers
from ..core.protocols import Batch
from ..core.tree import has_no_rows
from ..loss.counting import find_classes
from .ballot import Ballot, Divisors, Vote

_ONE = (1.0,)


@dataclass
class StepWeights:
    """Weigh the micro-batches of one step after another."""

    # Micro-batches, and their numbers of targets if known -> the weights of their means.
    weigh: Callable[[list[Batch], list[float] | None], list[float]]
    ballot: Ballot | None = None  # with several processes
    averaged: int = 1  # the processes whose gradients, divided by the weight of all, are averaged
    label_column: str = "labels"
    in_step: bool = False  # all processes need the same number of micro-batches
    count_tokens: Callable[[list[Batch]], int] | None = None  # of this process
    own: list[float] = field(default_factory=list)  # of the micro-batches of this process

    def vote(self, batches: list[Batch], counted: Sequence[Tensor] | None, padding: list[bool], bad_rows: int) -> None:
        """Tell the other processes about the micro-batches of a step; `counted` are their targets, if known."""
        assert self.ballot is not None
        void = [is_padding or has_no_rows(batch) for is_padding, batch in zip(padding, batches, strict=True)]
        counts = None if counted is None else clear_void(read_numbers(counted), padding)
        self.own = clear_void(self.weigh(batches, counts), void)
        classes = [one for one in (find_classes(batch, self.label_column) for batch in batches) if one is not None]
        weight, targets = sum(self.own), 0 if counts is None else sum(counts)
        is_even = len(set(self.own)) == 1 and (counts is None or targets == weight)
        may_differ = any(one.dim() > 1 for one in classes)
        self.ballot.cast(
            Vote(
                weight=weight,
                each=self.own[0] if is_even and not may_differ else 0.0,
                has_classes=bool(classes),
                targets=targets,
                has_count=counts is not None,
                tokens=0 if self.count_tokens is None else self.count_tokens(batches),
                micro_batches=len(batches),
                has_rows=not all(void),
                bad_rows=bad_rows,
            )
        )

    def find_divisors(self, samples: list[Batch], void: list[bool]) -> Sequence[float]:
        """Return what turns the means of the micro-batches of this process into their shares of the step."""
        if self.ballot is None:
            if len(samples) == 1 and not void[0]:
                return _ONE  # the weight of the only micro-batch does not matter
            weights = clear_void(self.weigh(samples, None), void)
            total = sum(weights)
            return [total / weight if weight else math.inf for weight in weights]
        if not self.ballot.is_cast:
            self.own = clear_void(self.weigh(samples, None), void)
            self.ballot.compare(self.own)
        return Divisors(self.own, self.averaged, self.ballot.add_weights)

    def add_stand_ins(self, count: int) -> int:
        """Return how many micro-batches without weight are added, as other processes have more than `count`."""
        if self.ballot is None or not self.in_step:
            return 0
        missing = int(max(vote.micro_batches for vote in self.ballot.votes)) - count
        self.own += [0.0] * missing
        return missing


def correct_weight(ballot: Ballot, gradients: list[Tensor], losses: list[Tensor]) -> None:
    """Correct gradients and losses that were divided by a weight of the step that was not right."""
    factor = ballot.find_correction()
    if factor != 1.0:
        torch._foreach_mul_(gradients, factor)
        losses[:] = [loss * factor for loss in losses]


def clear_void(numbers: Sequence[float], void: list[bool]) -> list[float]:
    """Return the numbers of micro-batches, with zero for those that do not count."""
    return [0.0 if is_void else float(number) for number, is_void in zip(numbers, void, strict=True)]
