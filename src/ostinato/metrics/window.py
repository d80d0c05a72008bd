"""Streaming metrics over the training batches since the last log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.eval_prediction import EvalPrediction
from .base import TooFewRowsError
from .streams import Stream

States = list[dict[str, Any]]


class MetricWindow:
    """Takes in batch after batch, and begins anew with every log line.

    What it has seen can be saved and added to as far as its metrics are ours. Others begin anew when a run is resumed.
    """

    def __init__(self, streams: Sequence[Stream], known: Mapping[str, Any]) -> None:
        self._wanted, self._known = streams, known
        self._open = [stream.opened(**known) for stream in streams]

    @property
    def foreign(self) -> list[str]:
        """The metrics that are not ours."""
        return [stream.name for stream in self._open if stream.takes != "ours"]

    def add(self, prediction: EvalPrediction) -> None:
        """Take in one batch."""
        for stream in self._open:
            stream.add(prediction)

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


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "values": value.tolist()}
    return value.item() if isinstance(value, np.generic) else value


def _array(value: Any) -> Any:
    return np.asarray(value["values"], dtype=value["dtype"]) if isinstance(value, dict) else value
