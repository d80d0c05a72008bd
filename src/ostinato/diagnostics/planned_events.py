"""What is due in the course of a run, and how often: evaluations, checkpoints, logs."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from ..arguments.settings import LoaderSettings, RunPlanSettings, SaveSettings
from ..checkpoint import space
from ..core.choices import IntervalStrategy, SaveStrategy
from ..core.state import TrainerState
from ..core.tree import has_length
from ..data.eval_set import EvalSet, rows_in
from ..engine.run import Plan
from ..evaluation import request
from . import eval_dry_run, metric_preview
from .hosts import PlanHost, as_run_host
from .run_plan import Checkpoints, Evaluations, Logs


def evaluations(trainer: PlanHost, plan: Plan, intervals: TrainerState) -> Evaluations:
    """When a run evaluates, and how much."""
    settings, evaluated = RunPlanSettings.of(trainer.args), eval_dry_run.evaluation_sets(trainer.eval_dataset)
    sets = {name or "eval_dataset": one for name, one in evaluated.items() if one is not None}
    rows = tuple((name, len(rows_in(one)) if has_length(rows_in(one)) else None) for name, one in sets.items())
    if settings.eval_strategy == IntervalStrategy.NO:
        return Evaluations("never during training", 1 if settings.evaluates_first else 0, rows, None)
    if settings.eval_strategy == IntervalStrategy.STEPS:
        when = f"every {intervals.eval_steps:,} steps and at the last one"
        count = _times(plan.max_steps, intervals.eval_steps, first=settings.eval_delay)
    else:
        when, count = "at the end of every epoch", _epochs(plan, first=settings.eval_delay)
    batches = [_eval_batches(trainer, one) for one in sets.values()]
    return Evaluations(
        when=f"{when}, and before the first" if settings.evaluates_first else when,
        count=None if count is None else count + settings.evaluates_first,
        rows=rows,
        batches=None if None in batches else sum(each or 0 for each in batches),
        metrics=_metrics(trainer),
    )


def _eval_batches(trainer: PlanHost, evaluated: Any) -> int | None:
    """How many batches an evaluation set makes, over all processes at once."""
    rows = rows_in(evaluated)
    if isinstance(rows, DataLoader):
        return len(rows) if has_length(rows) else None
    own = evaluated.batch_size if isinstance(evaluated, EvalSet) else None
    size = (own or RunPlanSettings.of(trainer.args).eval_batch_size) * LoaderSettings.of(trainer.args).world_size
    return -(-len(rows) // size) if has_length(rows) else None


def _metrics(trainer: PlanHost) -> tuple[str, ...]:
    """The names of all metrics, of whichever evaluation set."""
    sets = eval_dry_run.evaluation_sets(trainer.eval_dataset).values()
    specs = [request.asked_of(as_run_host(trainer), one if isinstance(one, EvalSet) else None) for one in sets]
    return tuple(dict.fromkeys(name for spec in specs for name in metric_preview.in_use(spec)))


def _times(steps: int, interval: int, first: float = 0) -> int:
    """How often something is due that is due every `interval` steps and at the last one, from step `first` on."""
    every, before = max(int(interval), 1), max(math.ceil(first), 1) - 1
    return max(steps // every - before // every, 0) + bool(steps % every and steps > before)


def _epochs(plan: Plan, first: float = 0) -> int | None:
    """How many epochs end, from epoch `first` on; None if nobody knows how long one is."""
    if plan.epochs == sys.maxsize:
        return None
    return max(plan.epochs - (max(math.ceil(first), 1) - 1), 0)


def checkpoints(trainer: PlanHost, plan: Plan, intervals: TrainerState, evaluations: int | None) -> Checkpoints:
    """When a run saves, how large a checkpoint is, and how many lie there at once."""
    settings, planned = SaveSettings.of(trainer.args), RunPlanSettings.of(trainer.args)
    directory = Path(trainer._get_output_dir(None))
    best = planned.best_metric
    loads_best = best if planned.loads_best else None
    if settings.strategy == SaveStrategy.NO:
        return Checkpoints("never", str(directory), 0, None, None, None, None, loads_best)
    if settings.strategy == SaveStrategy.STEPS:
        when, count = (
            f"every {intervals.save_steps:,} steps and at the last one",
            _times(plan.max_steps, intervals.save_steps),
        )
    elif settings.strategy == SaveStrategy.EPOCH:
        when, count = "at the end of every epoch", _epochs(plan)
    else:
        when, count = f"whenever {best} is the best so far (at most {evaluations} times)", None
    size = _checkpoint_bytes(trainer, only_model=settings.only_model)
    at_once = space.checkpoints_at_once(count if count is not None else evaluations, settings.total_limit)
    return Checkpoints(
        when=when,
        directory=str(directory),
        count=count,
        kept=settings.total_limit,
        bytes_each=size,
        bytes_at_once=None if at_once is None else at_once * size,
        free=_free(directory),
        best=loads_best,
    )


def _checkpoint_bytes(trainer: PlanHost, *, only_model: bool) -> int:
    """As far as the optimizer's settings tell: what a rehearsal has saved was without the optimizer's averages."""
    if only_model:
        return space.forecast_bytes(trainer.model, None)
    if trainer.optimizer is not None:
        return space.forecast_bytes(trainer.model, space.state_factor(trainer.optimizer))
    kind, options = optimizer_class(trainer)
    try:
        placeholder = kind([nn.Parameter(torch.zeros(1))], **options)
    except Exception:  # an optimizer that wants to know the model: two numbers for each is what most keep
        return space.forecast_bytes(trainer.model, 2.0)
    return space.forecast_bytes(trainer.model, space.state_factor(placeholder))


def _free(directory: Path) -> int | None:
    """What is free on the disk that a directory is on, or would be."""
    place = directory.absolute()
    existing = next((level for level in (place, *place.parents) if level.is_dir()), place)
    try:
        return shutil.disk_usage(existing).free
    except OSError:
        return None


def logs(trainer: PlanHost, plan: Plan, intervals: TrainerState) -> Logs:
    """When a run reports its numbers."""
    settings = RunPlanSettings.of(trainer.args)
    to = settings.report_to
    if settings.logging_strategy == IntervalStrategy.NO:
        return Logs("never", 0, to)
    if settings.logging_strategy == IntervalStrategy.STEPS:
        first = bool(settings.logs_first_step and intervals.logging_steps > 1)
        return Logs(
            f"every {intervals.logging_steps:,} steps", plan.max_steps // max(intervals.logging_steps, 1) + first, to
        )
    return Logs("at the end of every epoch", _epochs(plan), to)


def optimizer_class(trainer: PlanHost) -> tuple[Any, dict[str, Any]]:
    """The optimizer that would be made, and the arguments to make it with."""
    if trainer.optimizer_cls_and_kwargs is not None:
        return trainer.optimizer_cls_and_kwargs
    return trainer.get_optimizer_cls_and_kwargs(trainer.args, trainer.model)
