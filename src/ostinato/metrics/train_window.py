"""Measure the training batches since the last log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.eval_prediction import EvalPrediction
from .adapters import Stream
from .base import TooFewRowsError
from .combination import Combined

States = list[dict[str, Any]]
MAX_HELD = 1 << 16  # numbers of small batches that wait, to be measured together
SMALL_BATCH = 256  # numbers of a batch that are copied faster one by one than as tensors


class MetricWindow:
    """Adds batch after batch, and starts anew with every log.

    What it has seen can be saved and added to as far as its metrics are ours. Others begin anew when a run is resumed.
    """

    def __init__(self, streams: Sequence[Stream], known: Mapping[str, Any], ignored: Sequence[str] = ()) -> None:
        self.ignored = list(ignored)  # outputs of the model that are of no interest
        self._open = [stream.open(**known) for stream in streams]
        self._joins = all(stream.takes == "ours" and _is_counting(stream.metric) for stream in streams)
        self._held: list[tuple[Any, Any]] = []  # logits and labels of batches that wait
        self._held_size = 0
        self._alike: tuple[Any, ...] | None = None  # what the batch held last was like, in every respect
        self._kind: tuple[Any, ...] | None = None  # what batches that are joined have in common
        self._size = 0  # of the batch held last
        self._is_small = False  # it was, and on the host: its numbers are copied faster one by one than as tensors
        self._shown: tuple[bool, Any] = (False, None)  # whether the loss shifts labels, and the tokenizer
        self._has_measured = False

    @property
    def foreign(self) -> list[str]:
        """The names of metrics that are not built in."""
        return [stream.name for stream in self._open if stream.takes != "ours"]

    def add(self, prediction: EvalPrediction) -> None:
        """Add one batch. Small batches of counting metrics are measured together, which costs as much as one."""
        logits: Any = prediction.predictions
        if isinstance(logits, tuple) and "logits" in (prediction.output_names or ()):
            logits = prediction.logits
        if not self.hold(logits, prediction.label_ids, prediction.processing_class, shifts=prediction.shifts_labels):
            self._measure_held()
            self._measure(prediction)  # the very first at once: what is wrong with it is wrong with all

    def hold(self, logits: Any, labels: Any, processing_class: Any = None, *, shifts: bool = False) -> bool:
        """Keep a batch to be measured later; return False if it has to be measured now."""
        if not self._joins or not self._has_measured:
            return False
        if not isinstance(logits, Tensor) or not isinstance(labels, Tensor):  # or there are none
            return False
        alike = (logits.shape, labels.shape, logits.dtype, labels.dtype, logits.device, labels.device, shifts)
        if alike != self._alike and not self._can_wait(alike):
            return False
        if self._held_size + self._size > MAX_HELD:
            self._measure_held()
        self._shown = (shifts, processing_class)
        # Both may be written to before they are read: copies wait.
        self._held.append((logits.tolist(), labels.tolist()) if self._is_small else (_copy(logits), _copy(labels)))
        self._held_size += self._size
        return True

    def _can_wait(self, alike: tuple[Any, ...]) -> bool:
        """Return whether a batch unlike the last one can wait: it is small, and has rows to join."""
        shape, wanted, *rest = alike
        _, _, logits_device, labels_device, _ = rest
        size = shape.numel() + wanted.numel()
        if size > MAX_HELD // 8 or not shape.numel() or not shape or not wanted or shape[0] != wanted[0]:
            return False
        kind = (shape[1:], wanted[1:], *rest)
        if kind != self._kind:
            self._measure_held()
        self._alike, self._kind, self._size = alike, kind, size
        self._is_small = size <= SMALL_BATCH and logits_device.type == labels_device.type == "cpu"
        return True

    def _measure(self, prediction: EvalPrediction) -> None:
        self._has_measured = True
        for stream in self._open:
            stream.add(prediction)

    def _measure_held(self) -> None:
        if self._held:
            held, self._held, self._held_size = self._held, [], 0
            shifts, processing_class = self._shown
            assert self._kind is not None
            logits_shape, labels_shape, logits_dtype, labels_dtype, *_ = self._kind
            logits, labels = zip(*held, strict=True)
            pair = _join(logits, logits_shape, logits_dtype), _join(labels, labels_shape, labels_dtype)
            self._measure(EvalPrediction(*pair, shifts_labels=shifts, processing_class=processing_class))

    def drain(self, gather: Callable[[States], list[States]] | None = None) -> dict[str, float]:
        """Return the results since the last call, over all processes; leave out metrics with too few rows.

        `gather` returns what every process has seen, where there are several.
        """
        self._measure_held()
        if gather is not None:
            self.restore(gather(self.states()))
        results: dict[str, float] = {}
        for stream in self._open:
            try:
                results |= {name: float(value) for name, value in stream.compute().items()}
            except TooFewRowsError:
                continue
            finally:
                stream.close()
        return results

    def states(self) -> States:
        """Return what was seen since the last log, by metric, as plain numbers and lists."""
        self._measure_held()
        return [
            {name: _to_plain(value) for name, value in stream.metric.state().items()} if stream.takes == "ours" else {}
            for stream in self._open
        ]

    def restore(self, seen: list[States]) -> None:
        """Continue with what all processes have seen, now or in a run that was saved between two logs."""
        for number, stream in enumerate(self._open):
            if stream.takes != "ours":
                continue
            stream.metric.reset()
            for states in seen:
                if states and states[number]:
                    stream.metric.merge({name: _to_array(value) for name, value in states[number].items()})


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def _join(parts: Sequence[Any], shape: Sequence[int], dtype: torch.dtype) -> Any:
    """Return the rows of all parts, one after the other; each row has this shape."""
    if set(map(type, parts)) != {list}:
        return torch.cat([part if isinstance(part, Tensor) else torch.tensor(part, dtype=dtype) for part in parts])
    numbers: Iterable[Any] = chain.from_iterable(parts)
    for _ in shape:  # numpy takes several times as long to find out how lists are nested, and what is in them
        numbers = chain.from_iterable(numbers)
    kind = np.float64 if dtype.is_floating_point else np.bool_ if dtype == torch.bool else np.int64
    return np.fromiter(numbers, kind).reshape(-1, *shape)


def _is_counting(metric: Any) -> bool:
    return all(part.counts for part in (metric.parts if isinstance(metric, Combined) else [metric]))


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "values": value.tolist()}
    return value.item() if isinstance(value, np.generic) else value


def _to_array(value: Any) -> Any:
    return np.asarray(value["values"], dtype=value["dtype"]) if isinstance(value, dict) else value
