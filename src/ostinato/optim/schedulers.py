"""Learning-rate schedules under the names and signatures of transformers, and the choice of one for a run."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from ..arguments.settings import ScheduleSettings
from ..core.choices import SchedulerType
from ..core.errors import ConfigError
from ..core.notices import note_once
from . import schedule_shapes
from .adafactor import get_adafactor_schedule
from .greedy import GreedyLR, get_greedy_schedule


def build_schedule(
    settings: ScheduleSettings, optimizer: Optimizer, build: Callable[..., LRScheduler] | None = None
) -> LRScheduler:
    """Return the schedule of a run, made by `get_scheduler` or by what a script has put in its place.

    >>> settings = ScheduleSettings(SchedulerType.LINEAR, warmup_steps=0, num_training_steps=4, options={})
    >>> schedule = build_schedule(settings, torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1))
    >>> schedule.get_last_lr()
    [0.1]
    """
    if any(group["lr"] is None for group in optimizer.param_groups):
        name, kind = settings.name.value, type(optimizer).__name__
        note_once(f"the {name} schedule is not used: {kind} computes its own learning rate")
        return get_adafactor_schedule(optimizer)
    if settings.warmup_steps > 0 and "num_warmup_steps" not in _SCHEDULES[settings.name].needs:
        note_once(
            f"the {settings.name.value} schedule has no warmup: warmup_steps={settings.warmup_steps} is not used"
        )
    return (build or get_scheduler)(
        settings.name,
        optimizer=optimizer,
        num_warmup_steps=settings.warmup_steps,
        num_training_steps=settings.num_training_steps,
        scheduler_specific_kwargs=dict(settings.options),
    )


def get_scheduler(
    name: str | SchedulerType,
    optimizer: Optimizer,
    num_warmup_steps: int | None = None,
    num_training_steps: int | None = None,
    scheduler_specific_kwargs: dict[str, Any] | None = None,
) -> LRScheduler:
    """Return the schedule called `name`.

    Args:
        name: the name of the schedule.
        optimizer: the optimizer whose rates it sets.
        num_warmup_steps: the steps of warmup; ignored by a schedule without one.
        num_training_steps: the steps of the run; ignored by a schedule that does not depend on it.
        scheduler_specific_kwargs: options of the schedule.

    Returns:
        The schedule; call its `step()` after every step of the optimizer, or with a metric after every evaluation if
        its name is `reduce_lr_on_plateau` or `greedy`.

    Raises:
        ConfigError: a number that the schedule needs is missing, or it does not have one of the options.

    >>> optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    >>> get_scheduler("cosine", optimizer, num_warmup_steps=2, num_training_steps=10).get_last_lr()
    [0.0]
    """
    kind = SchedulerType(name)
    schedule = _SCHEDULES[kind]
    given = {"num_warmup_steps": num_warmup_steps, "num_training_steps": num_training_steps}
    for need in schedule.needs:
        if given[need] is None:
            raise ConfigError(
                what=f"SchedulerType.{kind.name} requires `{need}`, please provide that argument.",
                why=f"the shape of the {kind.value} schedule depends on it",
                fix=f"get_scheduler({kind.value!r}, optimizer, {need}=...)",
            )
    options, make = scheduler_specific_kwargs or {}, TYPE_TO_SCHEDULER_FUNCTION[kind]
    if make is schedule.make:
        _check_options(kind, schedule, options)
    numbers = {number: given[number] for number in (*schedule.needs, *schedule.takes)}
    return make(optimizer, **numbers, **options)


def is_metric_schedule(scheduler: object) -> bool:
    """Return whether a schedule takes `step(metric)` after an evaluation instead of a step after every update.

    >>> is_metric_schedule(get_greedy_schedule(torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)))
    True
    """
    return isinstance(scheduler, (ReduceLROnPlateau, GreedyLR))


def find_schedule_rate(scheduler: object, optimizer: Optimizer) -> tuple[float, float] | None:
    """Return the rate of an optimizer and the rate of its schedule at the current position, if these differ.

    They differ after a schedule of another shape was continued. Return None for a schedule that cannot compute its
    rate from the position: one that follows a metric, or derives each rate from the last.
    """
    if not isinstance(scheduler, LambdaLR):
        return None
    rates = _list_rates(scheduler)
    has = [float(group["lr"]) for group in optimizer.param_groups]
    if len(rates) != len(has) or all(map(partial(math.isclose, rel_tol=1e-9), rates, has)):
        return None
    return has[0], rates[0]


def follow_schedule(scheduler: LambdaLR, optimizer: Optimizer) -> None:
    """Set the rates of an optimizer to those of its schedule at the current position, without a step of it."""
    rates = _list_rates(scheduler)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
    scheduler._last_lr = [*rates]


def _list_rates(scheduler: LambdaLR) -> list[float]:
    shapes_and_peaks = zip(scheduler.lr_lambdas, scheduler.base_lrs, strict=True)
    return [float(peak) * shape(scheduler.last_epoch) for shape, peak in shapes_and_peaks]


def get_constant_schedule(optimizer: Optimizer, last_epoch: int = -1) -> LambdaLR:
    """Return a schedule that keeps the initial rate.

    Args:
        optimizer: the optimizer whose rates it sets.
        last_epoch: the last step that was taken, to continue from; -1 at the start.

    Returns:
        The schedule; call its `step()` after every step of the optimizer.

    >>> schedule = get_constant_schedule(optimizer)
    """
    return LambdaLR(optimizer, schedule_shapes.constant, last_epoch=last_epoch)


def get_constant_schedule_with_warmup(optimizer: Optimizer, num_warmup_steps: int, last_epoch: int = -1) -> LambdaLR:
    """Return a schedule that rises linearly, then stays constant.

    Args:
        optimizer: the optimizer whose rates it sets.
        num_warmup_steps: the steps of the rise.
        last_epoch: the last step that was taken, to continue from; -1 at the start.

    Returns:
        The schedule; call its `step()` after every step of the optimizer.

    >>> schedule = get_constant_schedule_with_warmup(optimizer, num_warmup_steps=100)
    """
    shape = partial(schedule_shapes.constant_after_warmup, num_warmup_steps=num_warmup_steps)
    return LambdaLR(optimizer, shape, last_epoch=last_epoch)


def get_linear_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, last_epoch: int = -1
) -> LambdaLR:
    """Return a schedule that rises linearly, then falls linearly to zero.

    Args:
        optimizer: the optimizer whose rates it sets.
        num_warmup_steps: the steps of the rise.
        num_training_steps: the step at which the rate is zero.
        last_epoch: the last step that was taken, to continue from; -1 at the start.

    Returns:
        The schedule; call its `step()` after every step of the optimizer.

    >>> schedule = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=100, num_training_steps=1000)
    """
    shape = partial(schedule_shapes.linear, num_warmup_steps=num_warmup_steps, num_training_steps=num_training_steps)
    return LambdaLR(optimizer, shape, last_epoch=last_epoch)


def get_cosine_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: float = 0.5,
    last_epoch: int = -1,
) -> LambdaLR:
    """Return a schedule that rises linearly, then falls along a cosine.

    Args:
        optimizer: the optimizer whose rates it sets.
        num_warmup_steps: the steps of the rise.
        num_training_steps: the step at which the cycles end.
        num_cycles: the number of cosine cycles; half a cycle ends at zero.
        last_epoch: the last step that was taken, to continue from; -1 at the start.

    Returns:
        The schedule; call its `step()` after every step of the optimizer.

    >>> schedule = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=100, num_training_steps=1000)
    """
    shape = partial(
        schedule_shapes.cosine,
        num_warmup_steps=num_warmup_steps,
        num_training_steps=num_training_steps,
        num_cycles=num_cycles,
    )
    return LambdaLR(optimizer, shape, last_epoch=last_epoch)


def get_cosine_with_hard_restarts_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: int = 1,
    last_epoch: int = -1,
) -> LambdaLR:
    """Return a schedule that rises linearly, then falls several times from the initial rate to zero.

    Args:
        optimizer: the optimizer whose rates it sets.
        num_warmup_steps: the steps of the rise.
        num_training_steps: the step at which the last cycle ends.
        num_cycles: how many times it falls, each time along half a cosine.
        last_epoch: the last step that was taken, to continue from; -1 at the start.

    Returns:
        The schedule; call its `step()` after every step of the optimizer.

    >>> schedule = get_cosine_with_hard_restarts_schedule_with_warmup(optimizer, 100, 1000, num_cycles=3)
    """
    shape = partial(
        schedule_shapes.cosine_with_restarts,
        num_warmup_steps=num_warmup_steps,
        num_training_steps=num_training_steps,
        num_cycles=num_cycles,
    )
    return LambdaLR(optimizer, shape, last_epoch=last_epoch)


def get_polynomial_decay_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    lr_end: float = 1e-7,
    power: float = 1.0,
    last_epoch: int = -1,
) -> LambdaLR:
    """Return a schedule that rises linearly, then falls along a power of the remaining time.

    Args:
        optimizer: the optimizer whose rates it sets.
        num_warmup_steps: the steps of the rise.
        num_training_steps: the step at which the rate is `lr_end`.
        lr_end: the last rate.
        power: the power of the remaining time.
        last_epoch: the last step that was taken, to continue from; -1 at the start.

    Returns:
        The schedule; call its `step()` after every step of the optimizer.

    Raises:
        ConfigError: `lr_end` is not below the initial rate, or that is 0.

    >>> schedule = get_polynomial_decay_schedule_with_warmup(optimizer, 100, 1000, power=2.0)
    """
    initial = _get_initial_rate(optimizer)
    if lr_end >= initial:
        raise ConfigError(
            what=f"lr_end ({lr_end}) must be smaller than initial lr ({initial})",
            why="the schedule decays from the initial rate to lr_end",
            fix=f"set lr_end below {initial}, or a larger learning rate",
        )
    shape = partial(
        schedule_shapes.polynomial,
        num_warmup_steps=num_warmup_steps,
        num_training_steps=num_training_steps,
        power=power,
        initial=_require_nonzero(initial),
        end=lr_end,
    )
    return LambdaLR(optimizer, shape, last_epoch=last_epoch)


def get_inverse_sqrt_schedule(
    optimizer: Optimizer, num_warmup_steps: int, timescale: int | None = None, last_epoch: int = -1
) -> LambdaLR:
    """Return a schedule that rises linearly, then falls as one over the square root of the step.

    Args:
        optimizer: the optimizer whose rates it sets.
        num_warmup_steps: the steps of the rise.
        timescale: the scale of the square root; by default the warmup, or 10,000 without one.
        last_epoch: the last step that was taken, to continue from; -1 at the start.

    Returns:
        The schedule; call its `step()` after every step of the optimizer.

    Raises:
        ConfigError: `timescale` is not positive.

    >>> schedule = get_inverse_sqrt_schedule(optimizer, num_warmup_steps=100)
    """
    if timescale is None:
        timescale = num_warmup_steps or 10_000
    if timescale <= 0:
        raise ConfigError(
            what=f"timescale={timescale} is not a length of time",
            why="the rate falls to a half in three times the timescale",
            fix="set timescale=10000, or leave it out",
        )
    shape = partial(schedule_shapes.inverse_sqrt, num_warmup_steps=num_warmup_steps, timescale=timescale)
    return LambdaLR(optimizer, shape, last_epoch=last_epoch)


def get_reduce_on_plateau_schedule(optimizer: Optimizer, **kwargs: Any) -> ReduceLROnPlateau:
    """Return a schedule that lowers the rate when a metric stops improving.

    Args:
        optimizer: the optimizer whose rates it sets.
        **kwargs: options of torch's `ReduceLROnPlateau`.

    Returns:
        The schedule; call its `step(metric)` after every evaluation.

    >>> schedule = get_reduce_on_plateau_schedule(optimizer, patience=3)
    """
    return ReduceLROnPlateau(optimizer, **kwargs)


def get_cosine_with_min_lr_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: float = 0.5,
    last_epoch: int = -1,
    min_lr: float | None = None,
    min_lr_rate: float | None = None,
) -> LambdaLR:
    """Return a schedule that rises linearly, then falls along a cosine to a lowest rate.

    Args:
        optimizer: the optimizer whose rates it sets.
        num_warmup_steps: the steps of the rise.
        num_training_steps: the step at which the cycles end.
        num_cycles: the number of cosine cycles; half a cycle ends at the lowest rate.
        last_epoch: the last step that was taken, to continue from; -1 at the start.
        min_lr: the lowest rate.
        min_lr_rate: the lowest rate as a share of the initial one.

    Returns:
        The schedule; call its `step()` after every step of the optimizer.

    Raises:
        ConfigError: both of `min_lr` and `min_lr_rate` are set, or neither.

    >>> schedule = get_cosine_with_min_lr_schedule_with_warmup(optimizer, 100, 1000, min_lr=1e-6)
    """
    shape = partial(
        schedule_shapes.cosine,
        num_warmup_steps=num_warmup_steps,
        num_training_steps=num_training_steps,
        num_cycles=num_cycles,
        floor=_compute_floor(optimizer, min_lr, min_lr_rate),
    )
    return LambdaLR(optimizer, shape, last_epoch=last_epoch)


def get_cosine_with_min_lr_schedule_with_warmup_lr_rate(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    num_cycles: float = 0.5,
    last_epoch: int = -1,
    min_lr: float | None = None,
    min_lr_rate: float | None = None,
    warmup_lr_rate: float | None = None,
) -> LambdaLR:
    """Return `get_cosine_with_min_lr_schedule_with_warmup` one step earlier: no rate is 0, the last is the lowest.

    The first rate is the share `warmup_lr_rate` of the initial one; without it, one step's share of the warmup.

    Args:
        optimizer: the optimizer whose rates it sets.
        num_warmup_steps: the steps of the rise.
        num_training_steps: the step at which the cycles end.
        num_cycles: the number of cosine cycles; half a cycle ends at the lowest rate.
        last_epoch: the last step that was taken, to continue from; -1 at the start.
        min_lr: the lowest rate.
        min_lr_rate: the lowest rate as a share of the initial one.
        warmup_lr_rate: the first rate as a share of the initial one.

    Returns:
        The schedule; call its `step()` after every step of the optimizer.

    Raises:
        ConfigError: both of `min_lr` and `min_lr_rate` are set, or neither.

    >>> schedule = get_cosine_with_min_lr_schedule_with_warmup_lr_rate(optimizer, 100, 1000, min_lr_rate=0.1)
    """
    shape = partial(
        schedule_shapes.cosine_from_first_step,
        num_warmup_steps=num_warmup_steps,
        num_training_steps=num_training_steps,
        num_cycles=num_cycles,
        floor=_compute_floor(optimizer, min_lr, min_lr_rate),
        start=warmup_lr_rate,
    )
    return LambdaLR(optimizer, shape, last_epoch=last_epoch)


def get_wsd_schedule(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_decay_steps: int,
    num_training_steps: int | None = None,
    num_stable_steps: int | None = None,
    warmup_type: str = "linear",
    decay_type: str = "cosine",
    min_lr_ratio: float = 0,
    num_cycles: float = 0.5,
    last_epoch: int = -1,
) -> LambdaLR:
    """Return a schedule that rises, stays constant, then falls (warmup, stable, decay).

    Args:
        optimizer: the optimizer whose rates it sets.
        num_warmup_steps: the steps of the rise.
        num_decay_steps: the steps of the fall.
        num_training_steps: the steps of the run, from which the constant part follows if `num_stable_steps` is None.
        num_stable_steps: the steps of the constant part.
        warmup_type: the curve of the rise: "linear", "cosine" or "1-sqrt".
        decay_type: the curve of the fall: "linear", "cosine" or "1-sqrt".
        min_lr_ratio: the lowest rate as a share of the initial one.
        num_cycles: the number of cosine cycles, for "cosine".
        last_epoch: the last step that was taken, to continue from; -1 at the start.

    Returns:
        The schedule; call its `step()` after every step of the optimizer.

    Raises:
        ConfigError: neither `num_training_steps` nor `num_stable_steps` is set, or a curve is unknown.

    >>> schedule = get_wsd_schedule(optimizer, num_warmup_steps=100, num_decay_steps=200, num_training_steps=1000)
    """
    _check_curve("warmup", warmup_type, schedule_shapes.RISES)
    _check_curve("decay", decay_type, schedule_shapes.FALLS)
    shape = partial(
        schedule_shapes.warmup_stable_decay,
        num_warmup_steps=num_warmup_steps,
        num_stable_steps=_count_stable_steps(num_warmup_steps, num_decay_steps, num_training_steps, num_stable_steps),
        num_decay_steps=num_decay_steps,
        rise=warmup_type,
        fall=decay_type,
        floor=min_lr_ratio,
        num_cycles=num_cycles,
    )
    return LambdaLR(optimizer, shape, last_epoch=last_epoch)


@dataclass(frozen=True)
class _Schedule:
    """A named schedule: its constructor, and the numbers of the run that it needs or accepts."""

    make: Callable[..., LRScheduler]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    target: Callable[..., LRScheduler] | None = None  # the function whose options it takes, if not `make`


_WARMUP = ("num_warmup_steps",)
_WARMUP_AND_END = ("num_warmup_steps", "num_training_steps")

_SCHEDULES: dict[SchedulerType, _Schedule] = {
    SchedulerType.LINEAR: _Schedule(get_linear_schedule_with_warmup, _WARMUP_AND_END),
    SchedulerType.COSINE: _Schedule(get_cosine_schedule_with_warmup, _WARMUP_AND_END),
    SchedulerType.COSINE_WITH_RESTARTS: _Schedule(get_cosine_with_hard_restarts_schedule_with_warmup, _WARMUP_AND_END),
    SchedulerType.POLYNOMIAL: _Schedule(get_polynomial_decay_schedule_with_warmup, _WARMUP_AND_END),
    SchedulerType.CONSTANT: _Schedule(get_constant_schedule),
    SchedulerType.CONSTANT_WITH_WARMUP: _Schedule(get_constant_schedule_with_warmup, _WARMUP),
    SchedulerType.INVERSE_SQRT: _Schedule(get_inverse_sqrt_schedule, _WARMUP),
    SchedulerType.REDUCE_ON_PLATEAU: _Schedule(get_reduce_on_plateau_schedule, target=ReduceLROnPlateau),
    SchedulerType.COSINE_WITH_MIN_LR: _Schedule(get_cosine_with_min_lr_schedule_with_warmup, _WARMUP_AND_END),
    SchedulerType.COSINE_WARMUP_WITH_MIN_LR: _Schedule(
        get_cosine_with_min_lr_schedule_with_warmup_lr_rate, _WARMUP_AND_END
    ),
    SchedulerType.WARMUP_STABLE_DECAY: _Schedule(get_wsd_schedule, _WARMUP, takes=("num_training_steps",)),
    SchedulerType.GREEDY: _Schedule(get_greedy_schedule, target=GreedyLR),
}

# The function behind each name, for code that puts another in its place.
TYPE_TO_SCHEDULER_FUNCTION: dict[SchedulerType, Callable[..., LRScheduler]] = {
    kind: schedule.make for kind, schedule in _SCHEDULES.items()
}


def _check_options(kind: SchedulerType, schedule: _Schedule, options: Mapping[str, Any]) -> None:
    """Raise if an option does not exist in the schedule, or a required one is missing."""
    parameters = inspect.signature(schedule.target or schedule.make).parameters
    taken = {"optimizer", *schedule.needs, *schedule.takes}
    valid = {name: parameter for name, parameter in parameters.items() if name not in taken}
    for name in options:
        if name not in valid:
            raise ConfigError(
                what=f"the {kind.value} schedule has no option {name!r}",
                why=f"its options are {', '.join(valid)}",
                fix=f"leave {name!r} out of lr_scheduler_kwargs, or use another lr_scheduler_type",
            )
    missing = [
        name for name, parameter in valid.items() if parameter.default is parameter.empty and name not in options
    ]
    if missing:
        raise ConfigError(
            what=f"the {kind.value} schedule is missing {', '.join(missing)}",
            why="there is no default that fits every run",
            fix=f"set lr_scheduler_kwargs={{{missing[0]!r}: ...}}",
        )


def _get_initial_rate(optimizer: Optimizer) -> float:
    """Return the rate the optimizer was made with."""
    rate = optimizer.defaults.get("lr")
    if rate is None:
        raise ConfigError(
            what=f"this {type(optimizer).__name__} has no learning rate to decay from",
            why="the end of this schedule is given as a rate, relative to the one the optimizer was made with",
            fix="make the optimizer with lr=..., or use another schedule",
        )
    return rate


def _require_nonzero(rate: float) -> float:
    """Return `rate`, a divisor, or raise if it is zero."""
    if rate == 0:
        raise ConfigError(
            what="the initial learning rate is 0",
            why="a schedule multiplies the initial rate, so it cannot lead from 0 to another rate",
            fix="set a learning rate above 0, or use the constant schedule",
        )
    return rate


def _compute_floor(optimizer: Optimizer, min_lr: float | None, min_lr_rate: float | None) -> float:
    """Return the lowest rate as a share of the initial one."""
    if min_lr is not None and min_lr_rate is not None:
        raise ConfigError(
            what="Only one of min_lr or min_lr_rate should be set",
            why=f"min_lr={min_lr} is a rate, min_lr_rate={min_lr_rate} a share of the initial rate: two ends",
            fix="leave one of them out of lr_scheduler_kwargs",
        )
    if min_lr is not None:
        return min_lr / _require_nonzero(_get_initial_rate(optimizer))
    if min_lr_rate is not None:
        return min_lr_rate
    raise ConfigError(
        what="One of min_lr or min_lr_rate should be set through the `lr_scheduler_kwargs`",
        why="without it this schedule is the plain cosine",
        fix="set lr_scheduler_kwargs={'min_lr_rate': 0.1}, or lr_scheduler_type='cosine'",
    )


def _check_curve(part: str, name: str, curves: Mapping[str, object]) -> None:
    if name not in curves:
        raise ConfigError(
            what=f"Unknown {part} type: {name}, expected 'linear', 'cosine' or '1-sqrt'",
            why=f"{part}_type names the curve of the {part}",
            fix=f"set {part}_type='linear'",
        )


def _count_stable_steps(num_warmup: int, num_decay: int, num_training: int | None, num_stable: int | None) -> int:
    """Return how many steps the constant part lasts."""
    if num_stable is None and num_training is None:
        raise ConfigError(
            what="Either num_training_steps or num_stable_steps must be specified.",
            why="the level part lasts num_stable_steps, or what warmup and decay leave of num_training_steps",
            fix="set num_stable_steps, or num_training_steps",
        )
    if num_stable is None:
        assert num_training is not None
        num_stable = num_training - num_warmup - num_decay
        if num_stable < 0:
            note_once(
                f"warmup ({num_warmup} steps) and decay ({num_decay}) are longer than the run ({num_training}): "
                "the decay starts before the warmup ends"
            )
    elif num_training is not None and num_training != num_warmup + num_stable + num_decay:
        note_once(
            f"num_stable_steps={num_stable} decides when the decay starts; the schedule ends at step "
            f"{num_warmup + num_stable + num_decay}, the run at step {num_training}"
        )
    return num_stable
