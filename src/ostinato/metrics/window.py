"""Streaming metrics over the training batches since the last log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.eval_prediction import EvalPrediction
from .base import TooFewRowsError
from .registry import Combined
from .streams import Stream

States = list[dict[str, Any]]
MOST_HELD = 1 << 16  # numbers of small batches that wait, to be measured together


class MetricWindow:
    """Takes in batch after batch, and begins anew with every log line.

    What it has seen can be saved and added to as far as its metrics are ours. Others begin anew when a run is resumed.
    """

    def __init__(self, streams: Sequence[Stream], known: Mapping[str, Any]) -> None:
        self._wanted, self._known = streams, known
        self._open = [stream.opened(**known) for stream in streams]
        self._joins = all(stream.takes == "ours" and _counts(stream.metric) for stream in streams)
        self._held: list[EvalPrediction] = []
        self._has_measured = False

    @property
    def foreign(self) -> list[str]:
        """The metrics that are not ours."""
        return [stream.name for stream in self._open if stream.takes != "ours"]

    def add(self, prediction: EvalPrediction) -> None:
        """Take in one batch. Small ones of metrics that count are measured together: each costs as much as all do."""
        small = _small(prediction) if self._joins and self._has_measured else None
        if small is None:
            self._measure_held()
            self._measure(prediction)  # the very first at once: what is wrong with it is wrong with all
            return
        if self._held and ((len(self._held) + 1) * _size(small) > MOST_HELD or not _are_alike(self._held[0], small)):
            self._measure_held()
        self._held.append(small)

    def _measure(self, prediction: EvalPrediction) -> None:
        self._has_measured = True
        for stream in self._open:
            stream.add(prediction)

    def _measure_held(self) -> None:
        held, self._held = self._held, []
        if held:
            self._measure(
                EvalPrediction(
                    torch.cat([one.predictions for one in held]),  # type: ignore[arg-type]
                    torch.cat([one.label_ids for one in held]),  # type: ignore[arg-type]
                    output_names=held[0].output_names,
                    shifts_labels=held[0].shifts_labels,
                    processing_class=held[0].processing_class,
                )
            )

    def drain(self, of_all: Callable[[States], list[States]]) -> dict[str, float]:
        """The results since the last time, over all processes; a metric that has seen too few rows is left out."""
        seen = of_all(self.states())
        if len(seen) > 1:
            self.restore(seen)
        results: dict[str, float] = {}
        for stream in self._open:
            try:
                results |= {name: float(value) for name, value in stream.result().items()}
            except TooFewRowsError:
                continue
        self._open = [stream.opened(**self._known) for stream in self._wanted]
        return results

    def states(self) -> States:
        """What was seen since the last log, by metric, as plain numbers and lists."""
        self._measure_held()
        return [
            {name: _plain(value) for name, value in stream.metric.state().items()} if stream.takes == "ours" else {}
            for stream in self._open
        ]

    def restore(self, seen: list[States]) -> None:
        """Go on with what the processes of a run have seen: of this one, or of one that was saved between two logs."""
        for number, stream in enumerate(self._open):
            if stream.takes != "ours":
                continue
            stream.metric.reset()
            for states in seen:
                if states and states[number]:
                    stream.metric.merge({name: _array(value) for name, value in states[number].items()})


def _counts(metric: Any) -> bool:
    return all(part.counts for part in (metric.parts if isinstance(metric, Combined) else [metric]))


def _small(prediction: EvalPrediction) -> EvalPrediction | None:
    """A copy of a batch that is small enough to wait for others; None: it is not, or has no rows to join."""
    names = prediction.output_names or ()
    logits: Any = prediction.logits if "logits" in names else prediction.predictions
    labels: Any = prediction.label_ids
    if not isinstance(logits, Tensor) or not isinstance(labels, Tensor) or logits.numel() > MOST_HELD // 8:
        return None
    if logits.dim() == 0 or labels.dim() == 0 or len(logits) != len(labels):
        return None
    return EvalPrediction(
        logits.clone(),  # type: ignore[arg-type]
        labels.clone(),  # type: ignore[arg-type]
        output_names=("logits",) if "logits" in names else None,
        shifts_labels=prediction.shifts_labels,
        processing_class=prediction.processing_class,
    )


def _size(prediction: EvalPrediction) -> int:
    return prediction.predictions.numel() + prediction.label_ids.numel()  # type: ignore[union-attr]


def _are_alike(one: EvalPrediction, other: EvalPrediction) -> bool:
    """Whether two batches differ in nothing but their rows."""
    pairs: Any = [(one.predictions, other.predictions), (one.label_ids, other.label_ids)]
    same = all(a.shape[1:] == b.shape[1:] and a.dtype == b.dtype and a.device == b.device for a, b in pairs)
    return same and one.output_names == other.output_names and one.shifts_labels == other.shifts_labels


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "values": value.tolist()}
    return value.item() if isinstance(value, np.generic) else value


def _array(value: Any) -> Any:
    return np.asarray(value["values"], dtype=value["dtype"]) if isinstance(value, dict) else value
