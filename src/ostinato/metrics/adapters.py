"""Feed streaming metrics from an evaluation: built-in ones, those of torchmetrics, and the user's own.

What `update` is given, batch by batch:

    update(prediction)        the batch's `EvalPrediction`, whose arrays are tensors
    update(preds, target)     `prediction.aligned()`: each label that counts and the prediction for it, as tensors
    ours                      what the metric reads: logits and labels, the shift of a causal model done

Nothing is kept. The tensors of a metric that says on which `device` it is (torchmetrics' do) are there, those of the
others are on the host.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..core.errors import MetricError
from ..core.eval_prediction import EvalPrediction
from ..core.host_copy import HostCopy
from ..core.tree import tree_map
from .base import Metric, is_streaming
from .combination import Combined

Takes = Literal["ours", "prediction", "pair"]


@dataclass(frozen=True)
class LateUpdate:
    """The update of a metric with what the device is still copying to the host."""

    metric: Metric
    copied: HostCopy

    def make(self) -> None:
        self.metric.update(*self.copied.get())


@dataclass(frozen=True)
class Stream:
    """A streaming metric, the name of its result if it gives none, and what its `update` takes."""

    metric: Any
    name: str
    takes: Takes

    @classmethod
    def wrap(cls, metric: Any, name: str | None = None) -> Stream:
        """Wrap a metric.

        >>> class Rows:
        ...     def reset(self):
        ...         self.rows = 0
        ...
        ...     def update(self, preds, target):
        ...         self.rows += len(target)
        ...
        ...     def compute(self):
        ...         return self.rows
        >>> Stream.wrap(Rows()).name, Stream.wrap(Rows()).takes
        ('rows', 'pair')
        """
        if isinstance(metric, (Metric, Combined)):
            if name is not None:
                metric = copy.copy(metric)
                metric.name = name
            return cls(metric, metric.name, "ours")
        given = name or getattr(metric, "name", None)
        return cls(
            metric,
            given if isinstance(given, str) else _to_snake_case(type(metric).__name__),
            _find_input_kind(metric),
        )

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The names of its results, if they are known before anything is measured."""
        return self.metric.keys if self.takes == "ours" and not self.metric.names_more else None

    @property
    def directions(self) -> dict[str, bool]:
        """Whether higher is better, by name, where that is known."""
        return self.metric.directions if self.takes == "ours" else {}

    def open(self, **known: Any) -> Stream:
        """Return an empty stream: a built-in metric is copied, with the settings of the trainer, others are reset."""
        if self.takes == "ours":
            return Stream(self.metric.settled(**known), self.name, self.takes)
        self.metric.reset()
        return self

    def add(self, prediction: EvalPrediction) -> list[LateUpdate]:
        """Add one batch; return the updates that can only be made once the device has computed it."""
        late = []
        if self.takes == "ours":
            for part in self.metric.parts if isinstance(self.metric, Combined) else [self.metric]:
                given = _read_inputs(prediction, part)
                condensed = part.condense(*given)
                if condensed is None:
                    part.update(*given)
                else:
                    late.append(LateUpdate(part, HostCopy(condensed)))
            return late
        prediction = _move_to(prediction, _find_device(self.metric))
        if self.takes == "prediction":
            self.metric.update(prediction)
        else:
            self.metric.update(*prediction.aligned())
        return late

    def compute(self, *, processes: int = 1) -> dict[str, Any]:
        """Return the result for all batches, under names."""
        with _disable_sync(self.metric) if processes > 1 and self.takes != "ours" else nullcontext():
            return _name_results(self.metric.compute(), self.name)

    def close(self) -> None:
        """Reset the metric."""
        self.metric.reset()


def _to_snake_case(name: str) -> str:
    """Return the name of a class as that of a number.

    >>> _to_snake_case("MulticlassAccuracy"), _to_snake_case("BLEUScore"), _to_snake_case("_Top5")
    ('multiclass_accuracy', 'bleu_score', 'top5')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower().strip("_")


def _find_input_kind(metric: Any) -> Takes:
    if not is_streaming(metric):
        raise _build_not_streaming_error(metric)
    try:
        parameters = inspect.signature(metric.update).parameters.values()
    except (TypeError, ValueError):
        return "pair"
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) == 1:
        return "prediction"
    if len(required) == 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return "pair"
    raise MetricError(
        what=f"{type(metric).__name__}.update takes {', '.join(p.name for p in required) or 'nothing'}",
        why="an evaluation has an EvalPrediction to give, or a pair (preds, target)",
        fix="wrap it in an object of your own with update(prediction), compute() and reset()",
    )


def _build_not_streaming_error(metric: Any) -> MetricError:
    if isinstance(metric, type):
        return MetricError(
            what=f"{metric.__name__} is a class, not a metric",
            why="a metric keeps what it has seen in an instance",
            fix=f"pass {metric.__name__}(...)",
        )
    missing = [name for name in ("update", "compute", "reset") if not callable(getattr(metric, name, None))]
    return MetricError(
        what=f"a {type(metric).__name__} is not a metric",
        why=f"it has no {', '.join(missing)}",
        fix="pass names such as 'accuracy', or objects with update, compute and reset; a function is compute_metrics=",
    )


def _read_inputs(prediction: EvalPrediction, metric: Metric) -> tuple[Any, Any]:
    """Return predictions and labels as a built-in metric takes them."""
    named = "logits" in (prediction.output_names or ())
    predictions, labels = prediction.logits if named else prediction.predictions, prediction.label_ids
    has_own_way = "shift" in vars(metric) or "tokenizer" in vars(metric)
    return _shift(predictions, labels) if prediction.shifts_labels and not has_own_way else (predictions, labels)


def _shift(predictions: Any, labels: Any) -> tuple[Any, Any]:
    """Pair each position with the next label, where there is a prediction for every position."""
    if isinstance(predictions, tuple):
        predictions = predictions[0]
    shape, wanted = tuple(getattr(predictions, "shape", ())), tuple(getattr(labels, "shape", ()))
    if len(wanted) == 2 and shape[:2] == wanted:
        return predictions[:, :-1], labels[:, 1:]
    return predictions, labels


def _list_members(metric: Any) -> Iterable[Any]:
    """Return a metric, or all those of a collection of torchmetrics."""
    return metric.modules() if isinstance(metric, nn.Module) else [metric]


def _find_device(metric: Any) -> torch.device:
    devices = (getattr(member, "device", None) for member in _list_members(metric))
    return next((device for device in devices if isinstance(device, torch.device)), torch.device("cpu"))


@contextmanager
def _disable_sync(metric: Any) -> Iterator[None]:
    """Keep torchmetrics from syncing processes: each has seen the rows of all, which must not be added up."""
    synced = [
        member for member in _list_members(metric) if callable(getattr(member, "distributed_available_fn", None))
    ]
    before = [member.distributed_available_fn for member in synced]
    for member in synced:
        member.distributed_available_fn = lambda: False
    try:
        yield
    finally:
        for member, function in zip(synced, before, strict=True):
            member.distributed_available_fn = function


def _move_to(prediction: EvalPrediction, target: torch.device) -> EvalPrediction:
    def move(tree: Any) -> Any:
        return tree_map(lambda leaf: leaf.to(target) if isinstance(leaf, Tensor) else leaf, tree)

    parts = (prediction.predictions, prediction.label_ids, prediction.inputs, prediction.losses)
    return prediction._copy_with(*map(move, parts))


def _name_results(result: Any, name: str) -> dict[str, Any]:
    """Return a number, several numbers or a dict under names."""
    if isinstance(result, Mapping):
        return dict(result)
    shape = tuple(getattr(result, "shape", ()))
    if shape and shape != (1,):
        return {f"{name}_{number}": one for number, one in enumerate(result)}
    return {name: result}
