"""Which metrics a trainer computes: what was asked for, what the trainer knows of them, and what "auto" finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..arguments.validate_trainer import check_metric_name
from ..core.errors import MetricError
from ..core.notices import note_once
from ..core.outputs import EvalPrediction
from ..data.columns import bare_model
from ..data.eval_set import EvalSet
from ..metrics.adapters import Stream
from ..metrics.auto import Choice, facts_of, suits
from .metric_run import Measuring
from .metric_spec import MetricSpec, asked

if TYPE_CHECKING:
    from ..trainer import Trainer


@dataclass(frozen=True)
class EvalRequest:
    """What the evaluation that is going on is for."""

    options: EvalSet | None = None  # of the set that is evaluated
    only_metrics: bool = False  # nobody gets to see the predictions


# ---- what was asked for ---------------------------------------------------------------------------------------------


def check_asked(trainer: Trainer) -> None:
    """Whatever is wrong with metrics asked for by name is told in the constructor."""
    asked(trainer.compute_metrics, trainer._metrics_asked)
    for options in _options_of(trainer).values():
        if options is not None:
            asked(options.compute_metrics, options.metrics)


def asked_of(trainer: Trainer, options: EvalSet | None = None) -> MetricSpec:
    """What an evaluation computes: what its set asks for, else what the trainer does. Read at the moment of use."""
    if options is not None and options.measures:
        return asked(options.compute_metrics, options.metrics)
    return asked(trainer.compute_metrics, trainer._metrics_asked)


def measures_anything(trainer: Trainer) -> bool:
    """Whether any evaluation set has a metric besides its loss."""
    return any(asked_of(trainer, options) for options in _options_of(trainer).values())


def memories(trainer: Trainer) -> list[Any]:
    """Metric functions and objects, which may remember what they were given."""
    sets = [options for options in _options_of(trainer).values() if options is not None]
    own = [part for one in sets for part in (one.compute_metrics, one.metrics, one.data_collator)]
    return [trainer.compute_metrics, trainer._metrics_asked, *own]


def _options_of(trainer: Trainer) -> dict[str | None, EvalSet | None]:
    """The options of every evaluation set, by its name."""
    sets = trainer.eval_dataset if isinstance(trainer.eval_dataset, dict) else {None: trainer.eval_dataset}
    return {name: one if isinstance(one, EvalSet) else None for name, one in sets.items()}


def check_best_metric(trainer: Trainer) -> None:
    """`metric_for_best_model` must be among what is measured, and the better direction must be the metric's."""
    measured = {name: asked_of(trainer, options) for name, options in _options_of(trainer).items()}
    known = {name: one.names for name, one in measured.items()}
    if not trainer._may_add_metrics() and None not in known.values():
        check_metric_name(trainer.args, {name: names or () for name, names in known.items()})
    args, wanted = trainer.args, (trainer.args.metric_for_best_model or "").removeprefix("eval_")
    directions = {
        metric if name is None else f"{name}_{metric}": better
        for name, one in measured.items()
        for metric, better in one.directions.items()
    }
    better = directions.get(wanted)
    if better is None or args.greater_is_better is better:
        return
    if args._record.origin(args, "greater_is_better").kind == "derived":
        args._record.derived(args, "greater_is_better", better, f"that is how {wanted!r} is meant")
        args._record.settle(args)
        note_once(f"metric_for_best_model={wanted!r}: the {'highest' if better else 'lowest'} counts as best")


# ---- one evaluation -------------------------------------------------------------------------------------------------


@contextmanager
def occasion(trainer: Trainer, evaluated: Any, *, only_metrics: bool) -> Iterator[None]:
    """While entered, evaluations are of this set: one by name, one with options, or any other."""
    sets = trainer.eval_dataset
    if isinstance(evaluated, str) and isinstance(sets, dict):
        evaluated = sets.get(evaluated)
    elif evaluated is None:
        evaluated = sets
    before = trainer._eval_request
    trainer._eval_request = EvalRequest(evaluated if isinstance(evaluated, EvalSet) else None, only_metrics)
    try:
        yield
    finally:
        trainer._eval_request = before


def loss_only(trainer: Trainer) -> bool | None:
    """What `evaluate` asks of the loop: no predictions where nothing is measured; else as the arguments say."""
    return None if asked_of(trainer, trainer._eval_request.options) else True


def measuring_of(trainer: Trainer) -> Measuring:
    """The metrics of the evaluation that begins."""
    wanted = asked_of(trainer, trainer._eval_request.options)
    return Measuring(
        function=wanted.function,
        streams=wanted.streams,
        choose=partial(fitting, trainer) if wanted.auto else None,
        known=partial(known_to, trainer),
        processes=trainer.args.world_size,
    )


def about(trainer: Trainer, logits: Any) -> dict[str, Any]:
    """What an `EvalPrediction` can tell besides its arrays."""
    return {
        "output_names": trainer._output_names.of(logits),
        "shifts_labels": bool(trainer._loss_shifts_labels),
        "processing_class": trainer.processing_class,
    }


def known_to(trainer: Trainer) -> dict[str, Any]:
    """What metrics may have left open."""
    decodes = callable(getattr(trainer.processing_class, "batch_decode", None))
    return {
        "shift": trainer._loss_shifts_labels,
        "tokenizer": trainer.processing_class if decodes else None,
        "label_names": getattr(getattr(trainer.model, "config", None), "id2label", None),
    }


# ---- "auto" ---------------------------------------------------------------------------------------------------------


def fitting(trainer: Trainer, prediction: EvalPrediction) -> Sequence[Stream]:
    """The metrics that fit the model and the labels of its first batch, and why, in one line."""
    choice = suits(
        facts_of(
            bare_model(trainer.model),
            labels=prediction.label_ids,
            label_names=trainer.label_names,
            generates=bool(getattr(trainer.args, "predict_with_generate", False)),
            installed=[name for name in ("sacrebleu",) if find_spec(name) is not None],
        )
    )
    names = [name for name in choice.names if name != "perplexity" or _has_scores(prediction)]
    if not names:
        note_once(f"compute_metrics='auto' measures nothing: {choice.why}")
        return ()
    note_once(f"compute_metrics='auto' measures {', '.join(names)}: {choice.why}")
    if "tokenizer" in choice.needs and known_to(trainer)["tokenizer"] is None:
        raise MetricError(
            what=f"compute_metrics='auto' has no tokenizer for {', '.join(names)}",
            why=f"{choice.why}; token ids have to be turned into text",
            fix="pass processing_class=tokenizer to the trainer",
        )
    return [Stream.of(part) for part in _chosen(choice, names).build().parts]


def _chosen(choice: Choice, names: list[str]) -> Choice:
    options: Mapping[str, Mapping[str, Any]] = {
        # whether labels are shifted is known better from the model's loss than from its name
        name: {option: value for option, value in choice.options.get(name, {}).items() if option != "shift"}
        for name in names
    }
    return Choice(tuple(names), choice.why, options, choice.needs)


def _has_scores(prediction: EvalPrediction) -> bool:
    """Whether there are logits, as opposed to the tokens that were made of them."""
    shape, wanted = (tuple(getattr(part, "shape", ())) for part in (prediction.logits, prediction.label_ids))
    return len(shape) == len(wanted) + 1
