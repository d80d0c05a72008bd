"""Trainers for questions: what a model says of features becomes answers to examples, and those are measured.

A long text is cut into several features, so what a model predicts is not yet an answer. Beside the features these
trainers know the examples they were made of, and a function that makes answers of predictions:

    evaluate                 examples and features are noted
    └── evaluation_loop      Trainer's, without compute_metrics; then, on the main process:
        ├── post_process_function(examples, features, predictions)   -> EvalPrediction
        └── compute_metrics(answers)                                 numbers, told to all processes

Everything else is Trainer's: when to evaluate, what to log, which model is the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ostinato import EvalLoopOutput, MetricError, PredictionOutput, Seq2SeqTrainer, Trainer
from ostinato.metrics import metrics as combined


@dataclass(frozen=True)
class AnswerRequest:
    """What is being answered: examples, and the features that were made of them."""

    examples: Any
    features: Any
    stage: tuple[str, ...] = ()  # "predict"; an evaluation does not name its own

    def first(self, count: int) -> AnswerRequest:
        """The first so many features, with their examples: a rehearsal sees no more."""
        if count >= len(self.features):
            return self
        features = _chosen(self.features, range(count))
        asked_about = set(_column(features, "example_id"))
        numbers = [n for n, name in enumerate(_column(self.examples, "id")) if name in asked_about]
        return AnswerRequest(_chosen(self.examples, numbers) if numbers else self.examples, features, self.stage)


def _column(rows: Any, name: str) -> list[Any]:
    named = getattr(rows, "column_names", None)  # of a data set of `datasets`
    if named is not None:
        return list(rows[name]) if name in named else []
    return [row.get(name) for row in rows]


def _chosen(rows: Any, numbers: Any) -> Any:
    select = getattr(rows, "select", None)
    return select(numbers) if callable(select) else [rows[number] for number in numbers]


class QuestionAnsweringTrainer(Trainer):
    """Trains as `Trainer` does; evaluates answers that `post_process_function` makes of predictions.

    Args:
        eval_examples: the rows that the features of `eval_dataset` were made of; by name, if there are several sets.
        post_process_function: `(examples, features, predictions)`, in `predict` also `"predict"`, to an
            `EvalPrediction` of answers and references. `compute_metrics` is given that.

    >>> trainer = QuestionAnsweringTrainer(
    ...     model,
    ...     args,
    ...     eval_dataset=features,
    ...     eval_examples=rows,
    ...     post_process_function=answers_of,
    ...     compute_metrics="squad",
    ... )  # doctest: +SKIP
    >>> trainer.evaluate()["eval_f1"]  # doctest: +SKIP
    88.1
    """

    _asked: AnswerRequest | None = None

    def __init__(
        self,
        *args: Any,
        eval_examples: Any = None,
        post_process_function: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.eval_examples = eval_examples
        self.post_process_function = post_process_function

    def evaluate(
        self,
        eval_dataset: Any = None,
        eval_examples: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Metrics of the answers to `eval_examples`, which are those of the constructor if none are given."""
        with _asking(self, _evaluated(self, eval_dataset, eval_examples)):
            return super().evaluate(eval_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix)

    def predict(  # type: ignore[override]
        self,
        predict_dataset: Any,
        predict_examples: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
    ) -> PredictionOutput:
        """Answers to examples, and their metrics if there are references. Only the main process has the answers."""
        with _asking(self, AnswerRequest(predict_examples, predict_dataset, ("predict",))):
            return super().predict(predict_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix)

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """The loop of `Trainer`, then answers in place of predictions."""
        with _measured_later(self) as measure:
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        return _answered(self, output, output.predictions, measure, metric_key_prefix)


class QuestionAnsweringSeq2SeqTrainer(Seq2SeqTrainer):
    """`QuestionAnsweringTrainer` for models that write their answers; further arguments go to `generate`.

    `post_process_function` is given the whole output, as `(examples, features, output)`; the ids that were generated
    are its `predictions`.
    """

    _asked: AnswerRequest | None = None

    def __init__(
        self,
        *args: Any,
        eval_examples: Any = None,
        post_process_function: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.eval_examples = eval_examples
        self.post_process_function = post_process_function

    def evaluate(  # type: ignore[override]
        self,
        eval_dataset: Any = None,
        eval_examples: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **gen_kwargs: Any,
    ) -> dict[str, float]:
        """Metrics of the answers to `eval_examples`, which are those of the constructor if none are given."""
        with _asking(self, _evaluated(self, eval_dataset, eval_examples)):
            return super().evaluate(
                eval_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix, **gen_kwargs
            )

    def predict(  # type: ignore[override]
        self,
        predict_dataset: Any,
        predict_examples: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        **gen_kwargs: Any,
    ) -> PredictionOutput:
        """Answers to examples, and their metrics if there are references. Only the main process has the answers."""
        with _asking(self, AnswerRequest(predict_examples, predict_dataset, ("predict",))):
            return super().predict(
                predict_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix, **gen_kwargs
            )

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """The loop of `Trainer`, then answers in place of predictions."""
        with _measured_later(self) as measure:
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        return _answered(self, output, output, measure, metric_key_prefix)


_Either = QuestionAnsweringTrainer | QuestionAnsweringSeq2SeqTrainer


# ---- what is answered -----------------------------------------------------------------------------------------------


def _evaluated(trainer: _Either, features: Any, examples: Any) -> AnswerRequest:
    """What an evaluation is about; of several sets, the one that is named."""
    if features is None or isinstance(features, str):
        name, features = features, trainer.eval_dataset
        features = features if name is None else features[name]
    else:
        name = None
    examples = trainer.eval_examples if examples is None else examples
    return AnswerRequest(examples[name] if name is not None and isinstance(examples, Mapping) else examples, features)


@contextmanager
def _asking(trainer: _Either, asked: AnswerRequest) -> Iterator[None]:
    before, trainer._asked = trainer._asked, asked
    try:
        yield
    finally:
        trainer._asked = before


# ---- answers --------------------------------------------------------------------------------------------------------


@contextmanager
def _measured_later(trainer: _Either) -> Iterator[Any]:
    """While entered, the loop computes no metrics: what they measure is not there yet."""
    measure = trainer.compute_metrics
    trainer.compute_metrics = measure if trainer.post_process_function is None else None
    try:
        yield measure
    finally:
        trainer.compute_metrics = measure


def _answered(trainer: _Either, output: EvalLoopOutput, found: Any, measure: Any, prefix: str) -> EvalLoopOutput:
    """The output of a loop with answers in place of predictions, and with their metrics."""
    process = trainer.post_process_function
    asked = trainer._asked or _evaluated(trainer, None, None)
    if process is None or measure is None or output.predictions is None:
        return output
    if asked.examples is None:
        raise MetricError(
            what=f"{type(trainer).__name__} has no examples to answer",
            why="post_process_function makes answers from the rows that the features were made of",
            fix=f"pass eval_examples=rows to {type(trainer).__name__}, or to evaluate",
        )
    answers: Any = None
    measured: dict[str, Any] | None = None
    try:
        if trainer.is_world_process_zero():
            asked = asked.first(output.num_samples or 0)
            answers = process(asked.examples, asked.features, found, *asked.stage)
            measured = {} if answers.label_ids is None else dict(_function(measure)(answers))
    finally:
        measured = _told_to_all(trainer, measured)  # also if it failed: the others wait for it
    named = {name if name.startswith(f"{prefix}_") else f"{prefix}_{name}": one for name, one in measured.items()}
    return output._replace(
        predictions=None if answers is None else answers.predictions,
        label_ids=None if answers is None else answers.label_ids,
        metrics={**named, **(output.metrics or {})},
    )


def _function(measure: Any) -> Callable[[Any], Mapping[str, Any]]:
    """`compute_metrics` as a function, also where it is a name or several."""
    function: Any = measure if callable(measure) else combined([measure] if isinstance(measure, str) else measure)
    return function


def _told_to_all(trainer: _Either, measured: dict[str, Any] | None) -> dict[str, Any]:
    """What the main process has measured, on every process: all of them compare it with the best so far."""
    told = trainer.strategy.broadcast_object(measured)
    if told is None and not trainer.is_world_process_zero():
        raise MetricError(
            what="the main process could not make answers of the predictions",
            why="post_process_function or compute_metrics failed there",
            fix="see what it said",
        )
    return told or {}
