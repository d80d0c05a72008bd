"""Shapes of learning-rate schedules: pure functions from a step to the factor on the initial rate.

Schedules hold them as `functools.partial`, so that a schedule can be pickled. Its saved state holds the position but
not the numbers below: a run that is resumed with other numbers follows the new ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def constant(_step: int) -> float:
    """Return the factor of the initial rate, 1."""
    return 1.0


def constant_after_warmup(step: int, *, num_warmup_steps: float) -> float:
    """Rise linearly, then stay constant."""
    return step / max(1.0, num_warmup_steps) if step < num_warmup_steps else 1.0


def linear(step: int, *, num_warmup_steps: float, num_training_steps: float) -> float:
    """Rise linearly, then fall linearly to zero."""
    if step < num_warmup_steps:
        return step / max(1, num_warmup_steps)
    return max(0.0, (num_training_steps - step) / max(1, num_training_steps - num_warmup_steps))


def cosine(
    step: int, *, num_warmup_steps: float, num_training_steps: float, num_cycles: float, floor: float = 0.0
) -> float:
    """Rise linearly, then follow a cosine between 1 and `floor`; half a cycle ends at the floor."""
    if step < num_warmup_steps:
        return step / max(1, num_warmup_steps)
    progress = (step - num_warmup_steps) / max(1, num_training_steps - num_warmup_steps)
    return max(0.0, _wave(progress, num_cycles) * (1 - floor) + floor)


def cosine_from_first_step(
    step: int,
    *,
    num_warmup_steps: float,
    num_training_steps: float,
    num_cycles: float,
    floor: float,
    start: float | None,
) -> float:
    """Follow `cosine` one step earlier: no step is taken at rate zero, and the last one is taken at the floor.

    The warmup begins at `start`, or at one step's share of the warmup.
    """
    if step < num_warmup_steps:
        if start is None:
            return (step + 1.0) / max(1.0, num_warmup_steps)
        return start + (1.0 - start) * step / max(1, num_warmup_steps - 1)
    progress = (step - num_warmup_steps + 1.0) / max(1.0, num_training_steps - num_warmup_steps)
    return max(0.0, _wave(progress, num_cycles) * (1 - floor) + floor)


def cosine_with_restarts(step: int, *, num_warmup_steps: float, num_training_steps: float, num_cycles: float) -> float:
    """Rise linearly, then fall `num_cycles` times from the top to zero along half a cosine."""
    if step < num_warmup_steps:
        return step / max(1, num_warmup_steps)
    progress = (step - num_warmup_steps) / max(1, num_training_steps - num_warmup_steps)
    if progress >= 1.0:
        return 0.0
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * ((num_cycles * progress) % 1.0))))


def polynomial(
    step: int, *, num_warmup_steps: float, num_training_steps: float, power: float, initial: float, end: float
) -> float:
    """Rise linearly to the rate `initial`, then fall along a power of the remaining time to the rate `end`."""
    if step < num_warmup_steps:
        return step / max(1, num_warmup_steps)
    num_decay_steps = num_training_steps - num_warmup_steps
    if step > num_training_steps or num_decay_steps == 0:
        return end / initial
    remaining = 1 - (step - num_warmup_steps) / num_decay_steps
    return ((initial - end) * remaining**power + end) / initial


def inverse_sqrt(step: int, *, num_warmup_steps: float, timescale: float) -> float:
    """Rise linearly, then fall as one over the square root of the step."""
    if step < num_warmup_steps:
        return step / max(1, num_warmup_steps)
    shift = timescale - num_warmup_steps
    return 1.0 / math.sqrt((step + shift) / timescale)


def warmup_stable_decay(
    step: int,
    *,
    num_warmup_steps: float,
    num_stable_steps: float,
    num_decay_steps: float,
    rise: str,
    fall: str,
    floor: float,
    num_cycles: float,
) -> float:
    """Rise from the floor, stay constant, fall to the floor; `rise` and `fall` name curves in `RISES` and `FALLS`."""
    if step < num_warmup_steps:
        height = RISES[rise](step / max(1, num_warmup_steps), num_cycles)
    elif step < num_warmup_steps + num_stable_steps:
        return 1.0
    elif step < num_warmup_steps + num_stable_steps + num_decay_steps:
        height = FALLS[fall]((step - num_warmup_steps - num_stable_steps) / max(1, num_decay_steps), num_cycles)
    else:
        return floor
    return max(0.0, height * (1.0 - floor) + floor)


def _wave(progress: float, num_cycles: float) -> float:
    """Return a cosine between 1 and 0 that starts at the top."""
    return 0.5 * (1.0 + math.cos(math.pi * num_cycles * 2.0 * progress))


Curve = Callable[[float, float], float]  # (progress in [0, 1], number of cosine cycles) -> height in [0, 1]

RISES: dict[str, Curve] = {
    "linear": lambda progress, _: progress,
    "cosine": lambda progress, _: 0.5 * (1.0 - math.cos(math.pi * progress)),
    "1-sqrt": lambda progress, _: 1.0 - math.sqrt(1.0 - progress),
}
FALLS: dict[str, Curve] = {
    "linear": lambda progress, _: 1.0 - progress,
    "cosine": _wave,
    "1-sqrt": lambda progress, _: 1.0 - math.sqrt(progress),
}
