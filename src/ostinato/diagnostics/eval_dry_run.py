"""Try the first evaluation on its first batch before the first step, so that mistakes in metrics cost seconds.

Nothing is logged, no callback is called, and nothing changes: not the model's weights, buffers or modes, not the
random streams, and not what metric functions, collators and data sets hold.
"""

from __future__ import annotations

import difflib
import itertools
import numbers
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from torch import nn
from torch.utils.data import Subset

from ..arguments import usage_errors
from ..arguments.settings import DryRunSettings
from ..core.compiled_model import get_uncompiled
from ..core.errors import MetricError, MetricFunctionError
from ..core.logged_numbers import collect_numbers
from ..core.random import preserve_rng
from ..core.state_guard import can_restore, preserve_objects
from ..data.dataset_errors import build_empty_set_error, is_empty
from ..data.eval_set import EvalSet, unwrap_eval_set
from ..data.loader import copy_without_workers
from ..data.sizes import is_iterable
from ..evaluation import eval_loop, request
from ..evaluation.eval_plan import plan_evaluation
from ..evaluation.metric_run import CurrentBatch
from ..metrics.base import TooFewRowsError
from ..optim import schedulers
from . import dispatch
from .hosts import DryRunHost

# Methods in which client libraries keep state from call to call: a rehearsal would be an extra call.
STATEFUL_OVERRIDES = (
    "evaluate",
    "evaluation_loop",
    "prediction_step",
    "compute_loss",
    "get_eval_dataloader",
    "_get_dataloader",
    "_get_eval_sampler",
    "_prepare_inputs",
)


def check_first_evaluation(trainer: DryRunHost, ignore_keys: list[str] | None) -> None:
    """Try metrics on the first batch of the first evaluation, and restore everything."""
    sets = list_eval_sets(trainer.eval_dataset)
    if not can_check(trainer, list(sets.values())):
        return
    if find_best_metric(trainer) is not None and any(is_empty(unwrap_eval_set(part)) for part in sets.values()):
        raise build_empty_set_error("evaluation set")
    shifts = trainer._loss_shifts_labels, trainer.loss_objective.smoother_shifts
    try:
        with preserve_state(trainer.model, *list_stateful_objects(trainer, list(sets.values()))):
            check_metrics(build_metric_check(trainer, sets, ignore_keys))
    finally:
        trainer._loss_shifts_labels, trainer.loss_objective.smoother_shifts = shifts


def list_eval_sets(eval_dataset: Any) -> dict[str | None, Any]:
    """Return the evaluation sets by name; a single set has the name None."""
    return eval_dataset if isinstance(eval_dataset, dict) else {None: eval_dataset}


def build_metric_check(
    trainer: DryRunHost, sets: dict[str | None, Any], ignore_keys: list[str] | None, first: int = 1
) -> MetricCheck:
    """Return the check of the first batches of each set."""
    names = {"eval" if name is None else f"eval_{name}": name for name in sets}
    return MetricCheck(
        prefixes=list(names),
        attempt=_Attempts(trainer, names, ignore_keys, first),
        wanted=None if trainer._can_add_metrics() else find_best_metric(trainer),
        any_process=trainer.strategy.any,
    )


@dataclass(frozen=True)
class _Attempts:
    """Evaluates a set, found by the prefix of its metrics, or its first batches."""

    trainer: DryRunHost
    names: dict[str, str | None]
    ignore_keys: list[str] | None
    first: int

    def __call__(self, prefix: str, whole: bool) -> Outcome:
        return attempt(self.trainer, prefix, self.names[prefix], self.ignore_keys, whole=whole, first=self.first)


def can_check(trainer: DryRunHost, sets: list[Any]) -> bool:
    """Return whether there is anything to try, and trying it can be undone."""
    settings = DryRunSettings.of(trainer.args)
    return (
        settings.evaluates
        and (request.has_metrics(trainer) or find_best_metric(trainer) is not None)
        and not settings.evaluates_first
        and not settings.batch_metrics
        and trainer.state.global_step < trainer.state.max_steps
        and not any(part is None or is_iterable(unwrap_eval_set(part)) for part in sets)
        and not any(map(trainer._is_overridden, STATEFUL_OVERRIDES))
        and can_restore(*list_stateful_objects(trainer, sets))
    )


def list_stateful_objects(trainer: DryRunHost, sets: list[Any]) -> list[Any]:
    """Return the objects that an evaluation calls and that may keep state."""
    functions = [trainer.data_collator, trainer.preprocess_logits_for_metrics, *request.list_stateful_parts(trainer)]
    return [*functions, *map(unwrap_eval_set, sets), getattr(trainer.model, "config", None)]


def attempt(
    trainer: DryRunHost, prefix: str, name: str | None, ignore_keys: list[str] | None, *, whole: bool, first: int = 1
) -> Outcome:
    """Evaluate one set, or its first batches, without calling callbacks."""
    if trainer._is_overridden("evaluation_loop"):
        return evaluate_with_own_loop(trainer, prefix, name, ignore_keys, whole=whole, first=first)
    loader, current_batch = copy_without_workers(trainer.get_eval_dataloader(name)), CurrentBatch()
    data = request.name_evaluated_set("Evaluation", prefix, trainer.eval_dataset)
    wanted = request.resolve_request(trainer, name, only_metrics=True)
    plan = plan_evaluation(
        trainer,
        request.attach_request(loader, wanted),
        loss_only=request.decide_loss_only(trainer, wanted),
        ignore_keys=ignore_keys,
        prefix=prefix,
        data=data,
        report_missing_labels=partial(dispatch.report_missing_labels, trainer, loader, data),
        must_stop=None,
    )
    plan = replace(plan, emits_events=False)
    model = get_uncompiled(trainer._wrap_model(trainer.model, training=False))
    model.eval()
    try:
        with trainer.precision.forward(trainer.model):
            batches = loader if whole else itertools.islice(loader, first)
            output = eval_loop.evaluation_loop(trainer, model, batches, plan, current_batch)
    except Exception as error:
        reason = dispatch.explain_evaluation_failure(trainer, error, current_batch, loader, data)
        return Outcome({}, reason, in_metrics=current_batch.doing == "metrics")
    return Outcome(output.metrics or {})


def evaluate_with_own_loop(
    trainer: DryRunHost, prefix: str, name: str | None, ignore_keys: list[str] | None, *, whole: bool, first: int
) -> Outcome:
    """Evaluate through the loop of a subclass, with a loader of the first rows alone."""
    evaluated, handler = list_eval_sets(trainer.eval_dataset)[name], trainer.callback_handler
    settings = DryRunSettings.of(trainer.args)
    if not whole:
        rows = take_first_rows(unwrap_eval_set(evaluated), first * settings.eval_batch_size * settings.world_size)
        evaluated = replace(evaluated, dataset=rows) if isinstance(evaluated, EvalSet) else rows
    callbacks, handler.callbacks = handler.callbacks, []  # no callback is called
    try:
        wanted = request.resolve_request(trainer, evaluated, only_metrics=True)
        loader = copy_without_workers(trainer.get_eval_dataloader(evaluated))
        loss_only = request.decide_loss_only(trainer, wanted)
        loader = request.attach_request(loader, wanted)
        output = trainer.evaluation_loop(loader, "Evaluation", loss_only, ignore_keys, prefix)
    except Exception as error:
        return Outcome({}, error, in_metrics=not whole)  # it may be due to the small number of rows
    finally:
        handler.callbacks = callbacks
    return Outcome(output.metrics or {})


def take_first_rows(rows: Any, count: int) -> Any:
    """Return the first `count` rows of a data set.

    >>> take_first_rows([1, 2, 3], 2)[:]
    [1, 2]
    """
    kept, select = range(min(count, len(rows))), getattr(rows, "select", None)
    if callable(select):  # of `datasets`, which keeps the columns
        return select(kept)
    return rows[: len(kept)] if isinstance(rows, list) else Subset(rows, kept)


def find_best_metric(trainer: DryRunHost) -> str | None:
    """Return the metric that decides on the best model or the learning rate."""
    best = DryRunSettings.of(trainer.args).best_metric
    return "loss" if best is None and schedulers.is_metric_schedule(trainer.lr_scheduler) else best


# Errors of a metric function that do not depend on its rows. Others (a single class, an index out of range) may be due
# to the single batch, and are tried again with all rows.
CERTAIN_ERRORS = (TypeError, AttributeError, NameError, ImportError, MetricError)

# Metrics that every evaluation measures.
SPEED_METRICS = ("runtime", "samples_per_second", "steps_per_second")


@dataclass(frozen=True)
class Outcome:
    """The metrics of an attempt, or what it raised, and whether a metric function raised it."""

    metrics: Mapping[str, Any]
    error: Exception | None = None
    in_metrics: bool = False


@dataclass(frozen=True)
class MetricCheck:
    """The evaluation sets to try, and how."""

    prefixes: Sequence[str]  # of the metrics' names, one for each evaluation set
    attempt: Callable[[str, bool], Outcome]  # (prefix, whether on the whole set)
    wanted: str | None  # metric_for_best_model, if its absence would be an error
    any_process: Callable[[bool], bool] = bool  # whether it is true in any process: all must evaluate together


def check_metrics(check: MetricCheck) -> None:
    """Try every evaluation set; raise what the first evaluation would raise."""
    known: dict[str, Any] = {}
    for prefix in check.prefixes:
        known.update(_try_set(check, prefix))
    if check.wanted is not None:
        _check_wanted(check, check.wanted, known)


def _try_set(check: MetricCheck, prefix: str) -> Mapping[str, Any]:
    outcome = check.attempt(prefix, False)
    if check.any_process(outcome.in_metrics and not _is_certain(outcome.error)):
        outcome = check.attempt(prefix, True)
    if outcome.error is not None:
        raise outcome.error
    return outcome.metrics


def _is_certain(error: Exception | None) -> bool:
    """Return whether an error does not depend on how many rows there are."""
    return isinstance(error, CERTAIN_ERRORS) and not isinstance(error, TooFewRowsError)


def _check_wanted(check: MetricCheck, wanted: str, known: dict[str, Any]) -> None:
    """Raise unless the best-model metric is returned, and is a number."""
    name = wanted if wanted.startswith("eval_") else f"eval_{wanted}"
    if name in {f"{prefix}_{measured}" for prefix in check.prefixes for measured in SPEED_METRICS}:
        return
    if name == "eval_loss" and all(f"{prefix}_loss" in known for prefix in check.prefixes):
        return  # for several sets, the mean of their losses
    if check.any_process(name not in known):
        for prefix in check.prefixes:  # with all rows, a function may return more names: recall_0, recall_1, ...
            known.update(check.attempt(prefix, True).metrics)
    if name not in known:
        raise _build_metric_error(wanted, known)
    if not isinstance(known[name], (numbers.Number, np.generic)):
        raise MetricFunctionError(
            what=f"metric_for_best_model={wanted!r} is a {type(known[name]).__name__}, and must be a number",
            why=f"compute_metrics returned {_shorten(known[name])}, which cannot be compared",
            fix="return a float under this name, or name another metric",
        )


def _build_metric_error(wanted: str, known: Mapping[str, Any]) -> MetricError:
    error, name = usage_errors.no_such_metric(wanted, known), wanted.removeprefix("eval_")
    if name == "loss" and not any(one.endswith("_loss") for one in known):
        why = "an evaluation computes a loss from labels, and its batches have none, or the model returns none"
        return type(error)(what=error.what, why=why, fix="add labels to the evaluation set, or name another metric")
    near = [one for one in known if one.endswith(f"_{name}")]  # the name of the evaluation set was forgotten
    near = near or difflib.get_close_matches(f"eval_{name}", known, n=1, cutoff=0.7)
    if not near:
        return error
    meant = " or ".join(repr(one.removeprefix("eval_")) for one in near)
    return type(error)(what=error.what, why=error.why, fix=f"did you mean {meant}?")


def _shorten(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextmanager
def preserve_state(model: nn.Module, *stateful: Any) -> Iterator[None]:
    """Restore the model, the random streams and these objects on exit."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(m, name, b) for m, _ in modes for name, b in m._buffers.items() if b is not None]
    with preserve_rng(), collect_numbers(None), preserve_objects(*stateful), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning about one batch need not hold for all
        for module, name, buffer in buffers:
            module._buffers[name] = buffer.clone()
        try:
            yield
        finally:
            for module, name, buffer in buffers:
                module._buffers[name] = buffer
            for module, mode in modes:
                module.training = mode
