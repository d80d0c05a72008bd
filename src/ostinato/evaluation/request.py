"""The metrics that a trainer computes: those requested, the options it knows for them, and the choice of "auto"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from .. import metrics
from ..arguments.settings import EvaluationSettings
from ..arguments.validate_trainer import ALWAYS_MEASURED, check_metric_name, is_left_to_subclass, set_direction
from ..core.errors import MetricError
from ..core.notices import note_once
from ..core.outputs import EvalPrediction
from ..core.protocols import MetricRequestHost, MetricsHost
from ..data.columns import unwrap_model
from ..data.eval_set import EvalSet
from ..metrics.adapters import Stream
from .metric_run import MetricRun
from .metric_spec import MetricSpec, parse_metrics


@dataclass(frozen=True)
class EvalRequest:
    """The purpose of an evaluation.

    Its loader carries it, since the signature of `evaluation_loop` is that of transformers.
    """

    options: EvalSet | None = None  # of the set that is evaluated
    only_metrics: bool = False  # predictions are not returned


class RequestedLoader:
    """A loader of the user's own that accepts no attributes, with its request."""

    def __init__(self, batches: Any, eval_request: EvalRequest) -> None:
        self._batches, self.eval_request = batches, eval_request

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def resolve_request(host: MetricRequestHost, evaluated: Any, *, only_metrics: bool) -> EvalRequest:
    """Return the request for a set: one of several by name, one with options, or any other."""
    sets = host.eval_dataset
    if isinstance(evaluated, str) and isinstance(sets, dict):
        evaluated = sets.get(evaluated)
    elif evaluated is None:
        evaluated = sets
    return EvalRequest(evaluated if isinstance(evaluated, EvalSet) else None, only_metrics)


def attach_request(loader: Any, request: EvalRequest) -> Any:
    """Return the loader with its request."""
    try:
        loader.eval_request = request
    except AttributeError:  # a list of batches
        return RequestedLoader(loader, request)
    return loader


def read_request(loader: Any) -> EvalRequest:
    """Return the request that a loader carries; a loader of a subclass's own loop may carry none."""
    return getattr(loader, "eval_request", None) or EvalRequest()


def name_evaluated_set(description: str, prefix: str, sets: Any) -> str:
    """Return the name of an evaluated set in messages; one of several has the name under which it was given.

    >>> name_evaluated_set("Evaluation", "eval_news", {"news": [], "mail": []})
    "evaluation set 'news'"
    >>> name_evaluated_set("Prediction", "test", None)
    'prediction set'
    """
    if description != "Evaluation":
        return "prediction set"
    name = prefix.removeprefix("eval_")
    return f"evaluation set {name!r}" if isinstance(sets, dict) and name in sets else "evaluation set"


# ---- requested metrics ----------------------------------------------------------------------------------------------


def check_requested(host: MetricRequestHost) -> None:
    """Raise if requested metrics are invalid. Called in the constructor."""
    sets = [options for options in _get_set_options(host).values() if options is not None]
    try:
        parse_metrics(host.compute_metrics, host._metrics_argument)
        for options in sets:
            parse_metrics(options.compute_metrics, options.metrics)
    except MetricError as error:
        raise error.with_traceback(None) from None  # the traceback of the check says nothing to a user


def get_requested_metrics(host: MetricRequestHost, options: EvalSet | None = None) -> MetricSpec:
    """Return the metrics of a set, or else the trainer's. Read at the moment of use."""
    if options is not None and options.measures:
        return parse_metrics(options.compute_metrics, options.metrics)
    return parse_metrics(host.compute_metrics, host._metrics_argument)


def find_requested_metrics(host: MetricRequestHost, options: EvalSet | None = None) -> MetricSpec:
    """Return the metrics of a set as far as they are known; a subclass's own evaluation may use any other object."""
    try:
        return get_requested_metrics(host, options)
    except MetricError:
        if not is_left_to_subclass("compute_metrics", host._is_replaced):
            raise
        return MetricSpec()


def are_requested(host: MetricRequestHost, options: EvalSet | None = None) -> bool:
    """Return whether a set has a metric besides its loss, of whatever kind."""
    given = (host.compute_metrics, host._metrics_argument)
    if options is not None and options.measures:
        given = (options.compute_metrics, options.metrics)
    return any(one is not None and not (isinstance(one, (list, tuple, Mapping)) and not one) for one in given)


def has_metrics(host: MetricRequestHost) -> bool:
    """Return whether any evaluation set has a metric besides its loss."""
    return any(are_requested(host, options) for options in _get_set_options(host).values())


def list_stateful_parts(host: MetricRequestHost) -> list[Any]:
    """Return metric functions and objects, which may hold state from earlier calls."""
    sets = [options for options in _get_set_options(host).values() if options is not None]
    own = [part for one in sets for part in (one.compute_metrics, one.metrics, one.data_collator)]
    return [host.compute_metrics, host._metrics_argument, *own]


def _get_set_options(host: MetricRequestHost) -> dict[str | None, EvalSet | None]:
    """Return the options of every evaluation set, by its name."""
    sets = host.eval_dataset if isinstance(host.eval_dataset, dict) else {None: host.eval_dataset}
    return {name: one if isinstance(one, EvalSet) else None for name, one in sets.items()}


def check_best_metric(host: MetricsHost) -> None:
    """Raise unless `metric_for_best_model` is measured; take a derived better direction from the metric."""
    measured = {name: find_requested_metrics(host, options) for name, options in _get_set_options(host).items()}
    known = {name: one.names for name, one in measured.items()}
    if not host._can_add_metrics() and None not in known.values():
        check_metric_name(host.args, {name: names or () for name, names in known.items()})
    directions = {
        metric if name is None else f"{name}_{metric}": better
        for name, one in measured.items()
        for metric, better in one.directions.items()
    }
    set_direction(host.args, directions)


def list_metric_names(host: MetricsHost) -> list[str] | None:
    """Return the names of the metrics that every evaluation returns; None if code of the user's may add others."""
    measured = {name: find_requested_metrics(host, options).names for name, options in _get_set_options(host).items()}
    if host._can_add_metrics() or None in measured.values():
        return None
    found = [] if None in measured else ["eval_loss"]
    for one, names in measured.items():
        prefix = "eval" if one is None else f"eval_{one}"
        found += [f"{prefix}_{name}" for name in (*ALWAYS_MEASURED, *(names or ()))]
    return found


# ---- one evaluation -------------------------------------------------------------------------------------------------


def decide_loss_only(host: MetricRequestHost, request: EvalRequest) -> bool | None:
    """Return True if there are no metrics, so that no predictions are kept; else None: as the arguments say."""
    return None if are_requested(host, request.options) else True


def build_metric_run(host: MetricsHost, request: EvalRequest) -> MetricRun:
    """Return the metrics of the evaluation that starts."""
    wanted = get_requested_metrics(host, request.options)
    return MetricRun(
        function=wanted.function,
        streams=wanted.streams,
        choose=partial(choose_fitting, host) if wanted.auto else None,
        known=partial(get_known_options, host),
        processes=host.strategy.size,
    )


def describe_predictions(host: MetricsHost, logits: Any) -> dict[str, Any]:
    """Return what an `EvalPrediction` holds besides its arrays."""
    return {
        "output_names": host._output_names.of(logits),
        "shifts_labels": bool(host._loss_shifts_labels),
        "processing_class": host.processing_class,
    }


def get_known_options(host: MetricsHost) -> dict[str, Any]:
    """Return the trainer's values for options that metrics may have left open."""
    decodes = callable(getattr(host.processing_class, "batch_decode", None))
    return {
        "shift": host._loss_shifts_labels,
        "tokenizer": host.processing_class if decodes else None,
        "label_names": getattr(getattr(host.model, "config", None), "id2label", None),
    }


# ---- "auto" ---------------------------------------------------------------------------------------------------------


def choose_fitting(host: MetricsHost, prediction: EvalPrediction) -> Sequence[Stream]:
    """Return the metrics that fit the model and the labels of its first batch; report the reason in one line."""
    choice = metrics.suits(
        metrics.facts_of(
            unwrap_model(host.model),
            labels=prediction.label_ids,
            label_names=host.label_names,
            generates=EvaluationSettings.of(host.args).generates,
            installed=[name for name in ("sacrebleu", "jiwer") if find_spec(name) is not None],
        )
    )
    names = [name for name in choice.names if name != "perplexity" or _has_scores(prediction)]
    if not names:
        note_once(f"compute_metrics='auto' measures nothing: {choice.why}")
        return ()
    note_once(f"compute_metrics='auto' measures {', '.join(names)}: {choice.why}")
    if "tokenizer" in choice.needs and get_known_options(host)["tokenizer"] is None:
        raise MetricError(
            what=f"compute_metrics='auto' has no tokenizer for {', '.join(names)}",
            why=f"{choice.why}; token ids have to be turned into text",
            fix="pass processing_class=tokenizer to the trainer",
        )
    return [Stream.wrap(part) for part in _restrict_choice(choice, names).build().parts]


def _restrict_choice(choice: metrics.Choice, names: list[str]) -> metrics.Choice:
    options: Mapping[str, Mapping[str, Any]] = {
        # the model's loss says more reliably than its name whether labels are shifted
        name: {option: value for option, value in choice.options.get(name, {}).items() if option != "shift"}
        for name in names
    }
    return metrics.Choice(tuple(names), choice.why, options, choice.needs)


def _has_scores(prediction: EvalPrediction) -> bool:
    """Return whether there are logits, as opposed to tokens made from them."""
    shape, wanted = (tuple(getattr(part, "shape", ())) for part in (prediction.logits, prediction.label_ids))
    return len(shape) == len(wanted) + 1
