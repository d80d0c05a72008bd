"""Trainers for question answering: predictions for features become answers to examples, and those are measured.

A long text is cut into several features, so a prediction is not yet an answer. Beside the features these trainers
have the examples they were made of, and a function that turns predictions into answers:

    evaluate                 records examples and features
    └── evaluation_loop      Trainer's, without compute_metrics; then, on the main process:
        ├── post_process_function(examples, features, predictions)   -> EvalPrediction
        └── compute_metrics(answers)                                 numbers, sent to all processes

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
    """The examples to answer, and the features that were made of them."""

    examples: Any
    features: Any
    stage: tuple[str, ...] = ()  # "predict"; an evaluation does not name its own

    def take(self, count: int) -> AnswerRequest:
        """Return the first `count` features with their examples: a dry run needs no more."""
        if count >= len(self.features):
            return self
        features = _select_rows(self.features, range(count))
        ids = set(_read_column(features, "example_id"))
        numbers = [n for n, name in enumerate(_read_column(self.examples, "id")) if name in ids]
        return AnswerRequest(_select_rows(self.examples, numbers) if numbers else self.examples, features, self.stage)


def _read_column(rows: Any, name: str) -> list[Any]:
    named = getattr(rows, "column_names", None)  # of a dataset of `datasets`
    if named is not None:
        return list(rows[name]) if name in named else []
    return [row.get(name) for row in rows]


def _select_rows(rows: Any, numbers: Any) -> Any:
    select = getattr(rows, "select", None)
    return select(numbers) if callable(select) else [rows[number] for number in numbers]


class QuestionAnsweringTrainer(Trainer):
    """A `Trainer` that evaluates the answers that `post_process_function` makes of predictions.

    Args:
        *args: the arguments of `Trainer`.
        eval_examples: the rows that the features of `eval_dataset` were made of; by name, if there are several sets.
        post_process_function: a function from `(examples, features, predictions)`, in `predict` followed by
            `"predict"`, to an `EvalPrediction` of answers and references, which is passed to `compute_metrics`.
        **kwargs: the keyword arguments of `Trainer`.

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

    _request: AnswerRequest | None = None

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
        """Evaluate the answers to examples.

        Args:
            eval_dataset: the features, or the name of one of several sets; those of the constructor by default.
            eval_examples: the rows that the features were made of; those of the constructor by default.
            ignore_keys: the outputs of the model that are left out of the predictions.
            metric_key_prefix: the prefix of the metrics' names.

        Returns:
            The metrics of the answers, by name.
        """
        with _set_request(self, _build_eval_request(self, eval_dataset, eval_examples)):
            return super().evaluate(eval_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix)

    def predict(  # type: ignore[override]
        self,
        predict_dataset: Any,
        predict_examples: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
    ) -> PredictionOutput:
        """Predict the answers to examples. Only the main process has the answers.

        Args:
            predict_dataset: the features.
            predict_examples: the rows that the features were made of.
            ignore_keys: the outputs of the model that are left out of the predictions.
            metric_key_prefix: the prefix of the metrics' names.

        Returns:
            The answers, and their metrics if there are references.
        """
        with _set_request(self, AnswerRequest(predict_examples, predict_dataset, ("predict",))):
            return super().predict(predict_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix)

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Run the loop of `Trainer`, and return answers in place of predictions."""
        with _disable_metrics(self) as measure:
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        return _replace_with_answers(self, output, output.predictions, measure, metric_key_prefix)


class QuestionAnsweringSeq2SeqTrainer(Seq2SeqTrainer):
    """A `QuestionAnsweringTrainer` for models that generate their answers.

    `post_process_function` gets the whole output, as `(examples, features, output)`; the generated ids are its
    `predictions`.

    Args:
        *args: the arguments of `Seq2SeqTrainer`.
        eval_examples: the rows that the features of `eval_dataset` were made of; by name, if there are several sets.
        post_process_function: the function that makes answers of the output.
        **kwargs: the keyword arguments of `Seq2SeqTrainer`.

    >>> trainer = QuestionAnsweringSeq2SeqTrainer(
    ...     model, args, eval_dataset=features, eval_examples=rows, post_process_function=answers_of
    ... )  # doctest: +SKIP
    """

    _request: AnswerRequest | None = None

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
        """Evaluate the answers to examples.

        Args:
            eval_dataset: the features, or the name of one of several sets; those of the constructor by default.
            eval_examples: the rows that the features were made of; those of the constructor by default.
            ignore_keys: the outputs of the model that are left out of the predictions.
            metric_key_prefix: the prefix of the metrics' names.
            **gen_kwargs: arguments of `generate`.

        Returns:
            The metrics of the answers, by name.
        """
        with _set_request(self, _build_eval_request(self, eval_dataset, eval_examples)):
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
        """Predict the answers to examples. Only the main process has the answers.

        Args:
            predict_dataset: the features.
            predict_examples: the rows that the features were made of.
            ignore_keys: the outputs of the model that are left out of the predictions.
            metric_key_prefix: the prefix of the metrics' names.
            **gen_kwargs: arguments of `generate`.

        Returns:
            The answers, and their metrics if there are references.
        """
        with _set_request(self, AnswerRequest(predict_examples, predict_dataset, ("predict",))):
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
        """Run the loop of `Trainer`, and return answers in place of predictions."""
        with _disable_metrics(self) as measure:
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        return _replace_with_answers(self, output, output, measure, metric_key_prefix)


_AnyTrainer = QuestionAnsweringTrainer | QuestionAnsweringSeq2SeqTrainer


# ---- requests -------------------------------------------------------------------------------------------------------


def _build_eval_request(trainer: _AnyTrainer, features: Any, examples: Any) -> AnswerRequest:
    """Return the features and examples of an evaluation; with several sets, those of the named one."""
    if features is None or isinstance(features, str):
        name, features = features, trainer.eval_dataset
        features = features if name is None else features[name]
    else:
        name = None
    examples = trainer.eval_examples if examples is None else examples
    return AnswerRequest(examples[name] if name is not None and isinstance(examples, Mapping) else examples, features)


@contextmanager
def _set_request(trainer: _AnyTrainer, request: AnswerRequest) -> Iterator[None]:
    before, trainer._request = trainer._request, request
    try:
        yield
    finally:
        trainer._request = before


# ---- answers --------------------------------------------------------------------------------------------------------


@contextmanager
def _disable_metrics(trainer: _AnyTrainer) -> Iterator[Any]:
    """Disable metrics within the loop: the answers that they measure do not exist yet."""
    measure = trainer.compute_metrics
    trainer.compute_metrics = measure if trainer.post_process_function is None else None
    try:
        yield measure
    finally:
        trainer.compute_metrics = measure


def _replace_with_answers(
    trainer: _AnyTrainer, output: EvalLoopOutput, found: Any, measure: Any, prefix: str
) -> EvalLoopOutput:
    """Return the output of a loop with answers in place of predictions, and with their metrics."""
    process = trainer.post_process_function
    request = trainer._request or _build_eval_request(trainer, None, None)
    if process is None or measure is None or output.predictions is None:
        return output
    if request.examples is None:
        raise MetricError(
            what=f"{type(trainer).__name__} has no examples to answer",
            why="post_process_function needs the rows that the features were made of",
            fix=f"pass eval_examples=rows to {type(trainer).__name__}, or to evaluate",
        )
    answers: Any = None
    measured: dict[str, Any] | None = None
    try:
        if trainer.is_world_process_zero():
            request = request.take(output.num_samples or 0)
            answers = process(request.examples, request.features, found, *request.stage)
            measured = {} if answers.label_ids is None else dict(_get_metric_function(measure)(answers))
    finally:
        measured = _broadcast_metrics(trainer, measured)  # also after a failure: the other processes wait for it
    named = {name if name.startswith(f"{prefix}_") else f"{prefix}_{name}": one for name, one in measured.items()}
    return output._replace(
        predictions=None if answers is None else answers.predictions,
        label_ids=None if answers is None else answers.label_ids,
        metrics={**named, **(output.metrics or {})},
    )


def _get_metric_function(measure: Any) -> Callable[[Any], Mapping[str, Any]]:
    """Return `compute_metrics` as a function, also if it is one name or several."""
    function: Any = measure if callable(measure) else combined([measure] if isinstance(measure, str) else measure)
    return function


def _broadcast_metrics(trainer: _AnyTrainer, measured: dict[str, Any] | None) -> dict[str, Any]:
    """Return the metrics of the main process on every process: all compare them with the best so far."""
    received = trainer.strategy.broadcast_object(measured)
    if received is None and not trainer.is_world_process_zero():
        raise MetricError(
            what="the main process could not turn predictions into answers",
            why="post_process_function or compute_metrics failed there",
            fix="see the error of the main process",
        )
    return received or {}
