"""The metrics of an evaluation besides the loss: a function over all rows, and metrics updated batch by batch.

The function is the user's `compute_metrics`: it is called once, with everything (or, with `batch_eval_metrics`, with
every batch). Streaming metrics take each batch as it comes, on its device, and nothing is kept for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from ..core.errors import MetricError
from ..core.notices import note_once
from ..core.outputs import EvalPrediction
from ..core.tree import tree_map
from ..metrics.adapters import LateUpdate, Stream
from .metric_spec import build_name_error


class MetricResultError(MetricError, TypeError):
    """A result of a metric function that is not a dict (transformers raises TypeError here)."""


@dataclass
class CurrentBatch:
    """The batch that an evaluation is working on, and what it is doing with it."""

    batch: Any = None
    number: int = 0
    doing: Literal["model", "logits", "metrics", "other"] = "other"
    given: Any = None  # to the user's function
    function: Callable[..., Any] | None = None  # the one that is running, if it is not the trainer's
    # The logits of the previous batch, if they are in main memory. They are held until the next ones exist, as in a
    # plain loop: memory that is freed at once goes back to the system, and is allocated again for every batch.
    previous: Any = None


@dataclass
class MetricRun:
    """The metrics of one evaluation while it runs."""

    function: Callable[..., Any] | None = None  # compute_metrics
    streams: Sequence[Stream] = ()
    choose: Callable[[EvalPrediction], Sequence[Stream]] | None = None  # "auto": chooses by the first batch
    known: Callable[[], Mapping[str, Any]] = dict  # the trainer's values for options that were left open
    processes: int = 1
    _open: list[Stream] = field(default_factory=list)
    _late: list[tuple[int, LateUpdate]] = field(default_factory=list)  # with the numbers of their batches
    results: dict[str, Any] = field(default_factory=dict)  # of the function

    def __bool__(self) -> bool:
        return self.function is not None or self.has_streams

    @property
    def has_streams(self) -> bool:
        return bool(self.streams) or self.choose is not None

    def add(self, part: Mapping[str, Any], current_batch: CurrentBatch, *, with_losses: bool = False) -> None:
        """Pass a batch to the streaming metrics; a batch without labels has nothing to compare with.

        If there are no labels by name, only metrics that take the whole prediction get it (`update(prediction)`).
        """
        self._make_late_updates(current_batch)  # of the batch before, while the device computes this one
        if not self.has_streams or part["logits"] is None or part["labels"] is None:
            return
        given = {"predictions": part["logits"], "label_ids": part["labels"], "inputs": part["inputs"]}
        prediction = EvalPrediction(**given, losses=part["losses"] if with_losses else None, **part["facts"])
        current_batch.doing, current_batch.given = "metrics", given
        if not self._open:
            self._open = [stream.open(**self.known()) for stream in self._choose_streams(prediction)]
        for stream in self._open:
            current_batch.function = stream.metric.update
            self._late.extend((current_batch.number, update) for update in stream.add(prediction))
        current_batch.doing, current_batch.given, current_batch.function = "other", None, None

    def _make_late_updates(self, current_batch: CurrentBatch) -> None:
        """Update metrics with a batch that had not been computed yet when they got it."""
        if not self._late:
            return
        newest, late, self._late = current_batch.number, self._late, []
        current_batch.doing = "metrics"
        for current_batch.number, update in late:
            current_batch.function = update.metric.update
            update.make()
        current_batch.doing, current_batch.function, current_batch.number = "other", None, newest

    def _choose_streams(self, prediction: EvalPrediction) -> Sequence[Stream]:
        if prediction.has_labels:
            return [*self.streams, *(self.choose(prediction) if self.choose is not None else ())]
        wanted = [stream for stream in self.streams if stream.takes == "prediction"]
        left_out = [stream.name for stream in self.streams if stream.takes != "prediction"]
        if left_out or self.choose is not None:
            names = ", ".join(left_out + (["'auto'"] if self.choose is not None else []))
            note_once(f"not measured: {names}; the model's loss needs no labels, and there are none to compare with")
        return wanted

    def add_to_function(self, part: Mapping[str, Any], current_batch: CurrentBatch, *, is_last: bool) -> None:
        """Call the function with the tensors of one batch (`batch_eval_metrics`); its last call returns the result."""
        if self.function is None or part["logits"] is None or part["labels"] is None:
            return
        names = {"predictions": "logits", "label_ids": "labels", "inputs": "inputs", "losses": "losses"}
        given = {name: _to_tensors(part[source]) for name, source in names.items() if part[source] is not None}
        result = self._call_function(current_batch, given, part["facts"], compute_result=is_last)
        if is_last:
            _check_result(result)
        if isinstance(result, Mapping):  # the function is not called for a last batch without labels
            self.results = dict(result)

    def add_all_rows(self, given: dict[str, Any], facts: Mapping[str, Any], current_batch: CurrentBatch) -> None:
        """Call the function with all rows."""
        result = self._call_function(current_batch, given, facts)
        _check_result(result)
        self.results = dict(result)

    def compute_results(self, current_batch: CurrentBatch) -> dict[str, Any]:
        """Return all results by name."""
        self._make_late_updates(current_batch)
        for stream in self._open:
            current_batch.doing, current_batch.given, current_batch.function = "metrics", {}, stream.metric.compute
            found = stream.compute(processes=self.processes)
            _check_result(found)
            for name, value in found.items():
                if name in self.results:
                    raise build_name_error(name, "compute_metrics and metrics=" if self.function else "two metrics")
                self.results[name] = value
        current_batch.doing, current_batch.given, current_batch.function = "other", None, None
        return self.results

    def close(self) -> None:
        """Close the metrics, so that the next evaluation starts empty, even if this one failed."""
        for stream in self._open:
            stream.close()
        self._open, self._late = [], []

    def _call_function(
        self, current_batch: CurrentBatch, given: dict[str, Any], facts: Mapping[str, Any], **how: Any
    ) -> Any:
        assert self.function is not None
        current_batch.doing, current_batch.given, current_batch.function = "metrics", given, self.function
        result = self.function(EvalPrediction(**given, **facts), **how)
        current_batch.doing, current_batch.given, current_batch.function = "other", None, None
        return result


def _check_result(metrics: Any) -> None:
    """Raise unless a metric function returned a dict with strings as keys."""
    if not isinstance(metrics, Mapping):
        example = "value" if not isinstance(metrics, float) else f"{metrics:.4g}"
        raise MetricResultError(
            what=f"compute_metrics returned {_describe_type(metrics)}, and must return a dict",
            why="each number needs a name, under which it is logged and compared",
            fix="return a dict: is there a return at its end?"
            if metrics is None
            else f'return {{"accuracy": {example}}}',
        )
    wrong = [name for name in metrics if not isinstance(name, str)]
    if wrong:
        raise MetricResultError(
            what=f"compute_metrics named a number {wrong[0]!r}, and names must be strings",
            why=f"it returned a dict with {', '.join(map(repr, metrics))}",
            fix="turn the names into strings: {str(name): value}",
        )


def _describe_type(result: Any) -> str:
    return "None" if result is None else f"a {type(result).__name__}"


def _to_tensors(tree: Any) -> Any:
    def to_tensor(leaf: Any) -> Any:
        return torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc" else leaf

    return tree_map(to_tensor, tree)
