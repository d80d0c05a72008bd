"""A try of the first evaluation before the first step, which leaves no trace."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

from torch.utils.data import Subset

from ..arguments.settings import DryRunSettings
from ..core.compiled_model import uncompiled
from ..core.state_guard import can_be_put_back
from ..data.eval_set import EvalSet, rows_in
from ..data.loader import Loader
from ..data.sizes import is_iterable
from ..evaluation import eval_loop, request
from ..evaluation.eval_plan import plan_evaluation
from ..evaluation.metric_run import CurrentBatch
from ..optim import schedulers
from . import dispatch, metric_dry_run
from .hosts import DryRunHost, as_run_host

# Where client libraries keep state from call to call: a rehearsal would be one call too many.
KEEP_STATE = (
    "evaluate",
    "evaluation_loop",
    "prediction_step",
    "compute_loss",
    "get_eval_dataloader",
    "_get_dataloader",
    "_get_eval_sampler",
    "_prepare_inputs",
)


def rehearse(trainer: DryRunHost, ignore_keys: list[str] | None) -> None:
    """Try metrics on the first batch of the first evaluation; leaves no trace."""
    sets = evaluation_sets(trainer.eval_dataset)
    if not can_rehearse(trainer, list(sets.values())):
        return
    shifts = trainer._loss_shifts_labels, trainer.objective.smoother_shifts
    try:
        with metric_dry_run.untouched(trainer.model, *memories(trainer, list(sets.values()))):
            metric_dry_run.rehearse(stage(trainer, sets, ignore_keys))
    finally:
        trainer._loss_shifts_labels, trainer.objective.smoother_shifts = shifts


def evaluation_sets(eval_dataset: Any) -> dict[str | None, Any]:
    """Return what is evaluated while a model trains, by name; a single set has none."""
    return eval_dataset if isinstance(eval_dataset, dict) else {None: eval_dataset}


def stage(
    trainer: DryRunHost, sets: dict[str | None, Any], ignore_keys: list[str] | None, first: int = 1
) -> metric_dry_run.Stage:
    """What there is to try: the first batches of each set."""
    names = {"eval" if name is None else f"eval_{name}": name for name in sets}
    return metric_dry_run.Stage(
        prefixes=list(names),
        attempt=lambda prefix, whole: attempt(trainer, prefix, names[prefix], ignore_keys, whole=whole, first=first),
        wanted=None if trainer._may_add_metrics() else wanted_metric(trainer),
        anyone=trainer.strategy.any,
    )


def can_rehearse(trainer: DryRunHost, sets: list[Any]) -> bool:
    """Whether there is anything to try, and trying it cannot change anything."""
    settings = DryRunSettings.of(trainer.args)
    return (
        settings.evaluates
        and (request.measures_anything(as_run_host(trainer)) or wanted_metric(trainer) is not None)
        and not settings.evaluates_first
        and not settings.batch_metrics
        and trainer.state.global_step < trainer.state.max_steps
        and not any(part is None or is_iterable(rows_in(part)) for part in sets)
        and not any(map(trainer._is_overridden, KEEP_STATE))
        and can_be_put_back(*memories(trainer, sets))
    )


def memories(trainer: DryRunHost, sets: list[Any]) -> list[Any]:
    """Whatever an evaluation calls that may remember it."""
    functions = [trainer.data_collator, trainer.preprocess_logits_for_metrics, *request.memories(as_run_host(trainer))]
    return [*functions, *map(rows_in, sets), getattr(trainer.model, "config", None)]


def attempt(
    trainer: DryRunHost, prefix: str, name: str | None, ignore_keys: list[str] | None, *, whole: bool, first: int = 1
) -> metric_dry_run.Outcome:
    """Evaluate one set, or its first batches, unheard."""
    if trainer._is_overridden("evaluation_loop"):
        return attempt_own_loop(trainer, prefix, name, ignore_keys, whole=whole, first=first)
    loader, current_batch = trainer.get_eval_dataloader(name), CurrentBatch()
    loader.num_workers, loader.pin_memory = 0, False  # starting workers for one batch would take longer than it
    data = request.name_evaluated_set("Evaluation", prefix, trainer.eval_dataset)
    host = as_run_host(trainer)
    wanted = request.resolve_request(host, name, only_metrics=True)
    plan = plan_evaluation(
        host,
        request.attach_request(loader, wanted),
        loss_only=request.decide_loss_only(host, wanted),
        ignore_keys=ignore_keys,
        prefix=prefix,
        data=data,
        without_labels=partial(dispatch.without_labels, trainer, loader, data),
        breaks_off=None,
    )
    plan = replace(plan, tells=False)
    model = uncompiled(trainer._wrap_model(trainer.model, training=False))
    model.eval()
    try:
        with trainer.precision.forward(trainer.model):
            batches = loader if whole else itertools.islice(loader, first)
            output = eval_loop.evaluation_loop(host, model, batches, plan, current_batch)
    except Exception as error:
        reason = dispatch.failed_evaluation(trainer, error, current_batch, loader, data)
        return metric_dry_run.Outcome({}, reason, in_metrics=current_batch.doing == "metrics")
    return metric_dry_run.Outcome(output.metrics or {})


def attempt_own_loop(
    trainer: DryRunHost, prefix: str, name: str | None, ignore_keys: list[str] | None, *, whole: bool, first: int
) -> metric_dry_run.Outcome:
    """The same by a loop that a subclass has overridden: it is given a loader of the first rows alone."""
    evaluated, handler = evaluation_sets(trainer.eval_dataset)[name], trainer.callback_handler
    settings, host = DryRunSettings.of(trainer.args), as_run_host(trainer)
    if not whole:
        rows = first_rows(rows_in(evaluated), first * settings.eval_batch_size * settings.world_size)
        evaluated = replace(evaluated, dataset=rows) if isinstance(evaluated, EvalSet) else rows
    callbacks, handler.callbacks = handler.callbacks, []  # nobody hears of it
    try:
        wanted = request.resolve_request(host, evaluated, only_metrics=True)
        loader = trainer.get_eval_dataloader(evaluated)
        if isinstance(loader, Loader):
            loader.num_workers, loader.pin_memory = 0, False
        loss_only = request.decide_loss_only(host, wanted)
        loader = request.attach_request(loader, wanted)
        output = trainer.evaluation_loop(loader, "Evaluation", loss_only, ignore_keys, prefix)
    except Exception as error:
        return metric_dry_run.Outcome({}, error, in_metrics=not whole)  # it may be due to its seeing so few rows
    finally:
        handler.callbacks = callbacks
    return metric_dry_run.Outcome(output.metrics or {})


def first_rows(rows: Any, count: int) -> Any:
    """The first so many rows of a data set.

    >>> first_rows([1, 2, 3], 2)[:]
    [1, 2]
    """
    kept, select = range(min(count, len(rows))), getattr(rows, "select", None)
    if callable(select):  # of `datasets`, whose columns are still known then
        return select(kept)
    return rows[: len(kept)] if isinstance(rows, list) else Subset(rows, kept)


def wanted_metric(trainer: DryRunHost) -> str | None:
    """The metric that decides about the best model, or about the learning rate."""
    best = DryRunSettings.of(trainer.args).best_metric
    return "loss" if best is None and schedulers.steps_on_metric(trainer.lr_scheduler) else best
