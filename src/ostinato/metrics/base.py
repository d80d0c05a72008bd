"""The base class of streaming metrics, and the protocol that any streaming metric satisfies.

    update ──measure──> per-row statistics ──total──> sums ──score──> {"f1": 0.8}
                              │                        ↑
                              └── kept only where sums do not suffice, or where an interval was asked for

A metric says how a batch is measured, how measurements add up and what the sums mean. From these three follow
streaming, merging over processes and bootstrap intervals, for every metric alike.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypedDict, runtime_checkable

import numpy as np

from ..core.errors import MetricError
from .inputs import condense_all, iterate_batches, split_prediction

IGNORE_INDEX = -100
Arrays = dict[str, np.ndarray]
State = dict[str, "np.ndarray | int | float"]


@runtime_checkable
class StreamingMetric(Protocol):
    """The protocol of a metric that receives one batch after the other and never needs them all at once.

    The parameters of `update` select what it receives: `update(prediction)` the `EvalPrediction` of a batch,
    `update(preds, target)` each prediction with the label it is for.

    >>> class Rows:
    ...     def reset(self):
    ...         self.rows = 0
    ...
    ...     def update(self, predictions, references):
    ...         self.rows += len(references)
    ...
    ...     def compute(self):
    ...         return {"rows": self.rows}
    >>> isinstance(Rows(), StreamingMetric)
    True
    """

    def update(self, *args: Any, **kwargs: Any) -> Any:
        """Add one batch.

        Args:
            args: The batch, in the form that the parameters select.
            kwargs: The same, by name.

        Returns:
            Anything; it is not used.
        """

    def compute(self) -> Any:
        """Return the result for all batches since the last reset."""

    def reset(self) -> Any:
        """Forget all batches.

        Returns:
            Anything; it is not used.
        """


def is_streaming(candidate: Any) -> bool:
    """Check whether an object has the methods `update`, `compute` and `reset`, as metrics of torchmetrics have.

    Args:
        candidate: The object; a class that was not called yet is none.

    Returns:
        Whether it has all three.

    >>> is_streaming(lambda prediction: {}), is_streaming({})
    (False, False)
    """
    if isinstance(candidate, type):  # a class that was not called yet
        return False
    return all(callable(getattr(candidate, method, None)) for method in ("update", "compute", "reset"))


class NamelessOptions(TypedDict, total=False):
    """The options of every metric but its name."""

    ignore_index: int | None
    interval: float | None
    resamples: int
    seed: int


class Options(NamelessOptions, total=False):
    """The options of every metric."""

    name: str | None


class TooFewRowsError(MetricError):
    """The rows seen are not enough: none has a label, or all have the same. More of them may be."""


@dataclass(frozen=True)
class Measured:
    """A batch reduced to statistics: entry i of every array belongs to row `row[i]` of the batch."""

    rows: int
    row: np.ndarray
    values: Arrays


class Metric(ABC):
    """A streaming metric: `update` per batch, `compute` at the end, `state` and `merge` between processes.

    It can be called like a `compute_metrics` function too, with an `EvalPrediction` or a pair.

    Args:
        name: the key of the result, where there is a single one.
        ignore_index: labels of this value do not count; None counts every label.
        interval: 0.95 adds `{name}_low` and `{name}_high`, a percentile bootstrap over rows. The statistics of
            each row are then kept (a few numbers per row or label, never logits).
        resamples: how many times the rows are drawn anew for the interval.
        seed: of the interval's own generator; the global ones are not touched.

    >>> from ostinato.metrics import metric
    >>> accuracy = metric("accuracy")
    >>> accuracy.update([1, 0], [1, 1])
    >>> accuracy.update([1, 1], [1, -100])
    >>> accuracy.compute()
    {'accuracy': 0.6666666666666666}
    >>> accuracy(([0, 1], [0, 1]))
    {'accuracy': 1.0}
    """

    default_name: ClassVar[str]
    higher_is_better: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = False  # True where sums do not suffice: the state grows with the rows
    counts: ClassVar[bool] = False  # True where sums are of whole numbers: however rows are grouped, they are the same
    reads_all: ClassVar[bool] = False  # True where all predictions are read on the host
    grows: ClassVar[bool] = False  # True where later batches may bring classes that earlier ones had not

    def __init__(
        self,
        *,
        name: str | None = None,
        ignore_index: int | None = IGNORE_INDEX,
        interval: float | None = None,
        resamples: int = 1000,
        seed: int = 0,
    ) -> None:
        self.name = name or self.default_name
        self.ignore_index = ignore_index
        self.interval, self.resamples, self.seed = _check_interval(self.name, interval, resamples), resamples, seed
        self.reset()

    # ------------------------------------------------------------------------------------------- what a metric says

    @abstractmethod
    def _measure(self, predictions: Any, references: Any) -> Measured:
        """Return the statistics of one batch."""

    @abstractmethod
    def _score(self, totals: Arrays) -> dict[str, float]:
        """Return the result, from the totals of all batches."""

    def _total(self, values: Arrays, weights: np.ndarray | None) -> Arrays:
        """Add up the statistics of many rows; `weights` says how often each entry counts."""
        if weights is None:
            return {name: array.sum(axis=0, dtype=np.float64) for name, array in values.items()}
        return {name: np.tensordot(weights, array.astype(np.float64), axes=(0, 0)) for name, array in values.items()}

    def _finalize(self, kept: Arrays) -> Arrays:
        """Return what is scored, from what was kept: for a metric that compares each row with all others."""
        return kept

    def _list_names(self) -> tuple[str, ...]:
        """Return the names of the result's values."""
        return (self.name,)

    def _combine(self, one: Arrays, other: Arrays) -> Arrays:
        """Add the totals of two sets of rows."""
        self._check_same_kind(one, other, whole=not self.grows)
        return {name: _add_padded(one[name], other[name]) for name in one}

    # --------------------------------------------------------------------------------------------------- streaming

    @property
    def keys(self) -> tuple[str, ...]:
        """The names that every result has, known before anything is measured.

        >>> from ostinato.metrics import metric
        >>> metric("f1", interval=0.95).keys
        ('f1', 'f1_low', 'f1_high')
        """
        bounds = () if self.interval is None else ("low", "high")
        return (*self._list_names(), *(f"{name}_{bound}" for name in self._list_names() for bound in bounds))

    @property
    def names_more(self) -> bool:
        """Whether results may have further names, which depend on what is seen."""
        return False

    @property
    def directions(self) -> dict[str, bool]:
        """Whether higher is better, for every name of the result.

        >>> from ostinato.metrics import metric
        >>> metric("rmse").directions
        {'rmse': False}
        """
        return dict.fromkeys(self.keys, self.higher_is_better)

    def reset(self) -> None:
        """Forget all batches."""
        self._rows = self._count = 0
        self._totals: Arrays | None = None
        self._kept: list[Arrays] = []

    def condense(self, predictions: Any, references: Any) -> tuple[Any, Any] | None:
        """Reduce a batch on a device to what `update` needs, so that the host can continue and copy that later.

        Args:
            predictions: The predictions of the batch.
            references: Its labels.

        Returns:
            What to copy and pass to `update`, as tensors on the device; None if `update` reads the batch itself.
        """
        return condense_all(predictions, references, self.name) if self.reads_all else None

    def update(self, predictions: Any, references: Any) -> None:
        """Add one batch.

        Args:
            predictions: The predictions of the batch, an array or tensor; several outputs are a tuple.
            references: Its labels.
        """
        self._add_measured(self._measure(predictions, references))

    def _add_measured(self, measured: Measured) -> None:
        if len(measured.row):
            if self._keeps_statistics:
                row = {} if self.interval is None else {"row": measured.row + self._rows}
                self._keep({**measured.values, **row})
            if not self.keeps_rows:
                self._add(self._total(measured.values, None))
        self._rows += measured.rows
        self._count += len(measured.row)

    def compute(self) -> dict[str, float]:
        """Return the result for all batches since the last reset.

        Raises:
            MetricError: No row with a label was seen.
        """
        if not self._count:
            raise self._build_empty_error()
        kept = self._finalize(self._join_kept()) if self._keeps_statistics else {}
        totals = self._total(_drop_row(kept), None) if self.keeps_rows else self._totals
        assert totals is not None
        result = self._score(totals)
        return {**result, **self._compute_bounds(result, kept)} if self.interval is not None else result

    def state(self) -> State:
        """Return what was seen, as numbers and numeric arrays: for another process, or to continue later."""
        state: State = {"rows": self._rows, "count": self._count}
        state |= {f"total.{name}": np.asarray(array) for name, array in (self._totals or {}).items()}
        if self._kept:
            state |= {f"kept.{name}": array for name, array in self._join_kept().items()}
        return state

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add what another copy of this metric has seen.

        Args:
            state: The `state()` of the copy.

        >>> from ostinato.metrics import metric
        >>> here, there = metric("mae"), metric("mae")
        >>> here.update([1.0], [2.0])
        >>> there.update([1.0], [4.0])
        >>> here.merge(there.state())
        >>> here.compute()
        {'mae': 2.0}
        """
        totals, kept = _select_part(state, "total."), _select_part(state, "kept.")
        self._check_state(state, totals, kept)
        if kept:
            self._keep(kept if self.interval is None else {**kept, "row": kept["row"] + self._rows})
        if totals:
            self._add(totals)
        self._rows += int(state["rows"])
        self._count += int(state["count"])

    def __call__(self, prediction: Any, *, compute_result: bool | None = None) -> dict[str, float]:
        """As a `compute_metrics` function: the result for this prediction alone.

        With `batch_eval_metrics=True` the trainer passes `compute_result`: False takes in a batch, True also ends.
        """
        return compute_metrics_result(self, prediction, compute_result)

    def settled(self, **known: Any) -> Metric:
        """Copy the metric, without what it has seen, and fill in options that were left open.

        Args:
            known: What a trainer knows: `shift` (whether the model's loss compares each place with the next label),
                `tokenizer` and `label_names`. Options that were given to the metric stay.

        Returns:
            The copy.

        >>> from ostinato.metrics import metric
        >>> metric("token_accuracy").settled(shift=False).shift, metric("token_accuracy", shift=True).settled().shift
        (False, True)
        """
        fresh = copy.copy(self)
        fresh.reset()
        for option, value in known.items():
            if value is not None and option in vars(fresh) and vars(fresh)[option] in (None, {}):
                fresh._set_option(option, value)
        return fresh

    def _set_option(self, option: str, value: Any) -> None:
        setattr(self, option, value)

    # --------------------------------------------------------------------------------------------------- the rest

    @property
    def _keeps_statistics(self) -> bool:
        return self.keeps_rows or self.interval is not None

    def _add(self, totals: Arrays) -> None:
        self._totals = totals if self._totals is None else self._combine(self._totals, totals)

    def _keep(self, part: Arrays) -> None:
        if self._kept:
            self._check_same_kind(self._kept[0], part, whole=False)
        self._kept.append(part)

    def _check_same_kind(self, one: Arrays, other: Arrays, *, whole: bool) -> None:
        """Raise if batches cannot be joined; `whole`: the first dimension is not rows, and has to match too."""
        for name in {**one, **other}:
            shapes = [np.shape(part[name])[0 if whole else 1 :] if name in part else None for part in (one, other)]
            if shapes[0] != shapes[1]:
                raise MetricError(
                    what=f"{self.name}: this batch has {name} of shape {shapes[1]}, earlier ones {shapes[0]}",
                    why="every batch must have the same kind of predictions and labels, and as many columns",
                    fix="use one metric per kind, or call reset() in between",
                )

    def _join_kept(self) -> Arrays:
        """Return everything kept as one set of arrays."""
        if len(self._kept) > 1:
            self._kept = [{name: np.concatenate([part[name] for part in self._kept]) for name in self._kept[0]}]
        return self._kept[0]

    def _compute_bounds(self, result: dict[str, float], kept: Arrays) -> dict[str, float]:
        """Return `{name}_low` and `{name}_high`, from rows drawn with replacement."""
        values = _drop_row(kept)
        found, row = np.unique(kept["row"], return_inverse=True)
        generator, drawn = np.random.default_rng(self.seed), []
        for _ in range(self.resamples):
            times = np.bincount(generator.integers(len(found), size=len(found)), minlength=len(found))
            try:
                drawn.append(self._score(self._total(values, times[row])))
            except MetricError:  # a draw without one of the classes says nothing
                continue
        if not drawn:
            raise MetricError(
                what=f"{self.name} has no interval",
                why=f"none of {self.resamples} draws from {len(found)} rows could be scored",
                fix="evaluate more rows, or leave out interval=",
            )
        return _compute_percentiles(
            [name for name in result if name in self._list_names()], drawn, self.interval or 0.0
        )

    def _build_empty_error(self) -> MetricError:
        if self._rows:
            why = f"every label of the {self._rows} rows seen is {self.ignore_index}, which is ignored"
            return TooFewRowsError(
                f"{self.name} has nothing to compute", why, "check what the collator does to the labels"
            )
        return TooFewRowsError(f"{self.name} has nothing to compute", "it has seen no rows", "call update() first")

    def _check_state(self, state: Mapping[str, Any], totals: Arrays, kept: Arrays) -> None:
        ours = self._totals if self._totals is not None else totals
        expected = bool(int(state.get("count", 0)))
        fits = "rows" in state and "count" in state and (not totals or totals.keys() == ours.keys())
        kept_fits = bool(kept) == self._keeps_statistics and ("row" in kept) == (self.interval is not None)
        if not fits or (expected and (not kept_fits or bool(totals) == self.keeps_rows)):
            raise MetricError(
                what=f"{self.name} cannot merge this state",
                why=f"it holds {', '.join(state) or 'nothing'}, so it is of another metric or of other options",
                fix="merge states of metrics that were made with the same name and options",
            )


def _check_interval(name: str, interval: float | None, resamples: int) -> float | None:
    if interval is not None and not 0 < interval < 1:
        raise MetricError(
            what=f"{name}: interval={interval} is not a share",
            why="it is the part of the resampled values between low and high",
            fix="interval=0.95",
        )
    if resamples < 1:
        raise MetricError(f"{name}: resamples={resamples} draws nothing", "an interval needs draws", "resamples=1000")
    return interval


def _add_padded(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    one, other = np.asarray(one), np.asarray(other)
    if one.shape == other.shape:
        return one + other
    total = np.zeros(np.maximum(one.shape, other.shape), dtype=np.float64)
    total[tuple(slice(0, size) for size in one.shape)] += one
    total[tuple(slice(0, size) for size in other.shape)] += other
    return total


def _drop_row(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if name != "row"}


def _select_part(state: Mapping[str, Any], prefix: str) -> Arrays:
    return {name.removeprefix(prefix): np.asarray(value) for name, value in state.items() if name.startswith(prefix)}


def _compute_percentiles(names: list[str], drawn: list[dict[str, float]], interval: float) -> dict[str, float]:
    bounds = {}
    for name in names:
        values = np.array([draw[name] for draw in drawn if name in draw])
        values = values[~np.isnan(values)]
        low, high = np.quantile(values, [(1 - interval) / 2, (1 + interval) / 2]) if len(values) else (np.nan,) * 2
        bounds |= {f"{name}_low": float(low), f"{name}_high": float(high)}
    return bounds


def compute_metrics_result(metric: Any, prediction: Any, compute_result: bool | None) -> dict[str, float]:
    """Return the result of one or several metrics that are called as a `compute_metrics` function."""
    if compute_result is None:
        metric.reset()
    try:
        for predictions, references in iterate_batches(*split_prediction(prediction, metric.name)):
            metric.update(predictions, references)
        result = {} if compute_result is False else metric.compute()
    except BaseException:
        metric.reset()  # the next evaluation must not begin with half of this one
        raise
    if compute_result is not False:
        metric.reset()
    return result
