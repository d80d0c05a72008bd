"""Several metrics as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import MetricError
from .base import Metric, State, compute_metrics_result


class Combined:
    """Several metrics over the same predictions, with one dict of results.

    Args:
        parts: The metrics. No two of them may give a result of the same name.

    >>> from ostinato.metrics.classification import F1, Accuracy
    >>> both = Combined([Accuracy(), F1()])
    >>> both.update([1, 0], [1, 1])
    >>> both.compute()
    {'accuracy': 0.5, 'f1': 0.6666666666666666}
    """

    def __init__(self, parts: list[Metric]) -> None:
        if not parts:
            raise MetricError("no metrics are given", "the list is empty", "metrics=['accuracy']")
        self.parts = parts
        self.name = ", ".join(part.name for part in parts)
        twice = [key for number, key in enumerate(self.keys) if key in self.keys[:number]]
        if twice:
            raise MetricError(
                what=f"two metrics give the result {twice[0]!r}",
                why=f"the metrics are {self.name}",
                fix="give one another name: ('f1', {'average': 'macro', 'name': 'f1_macro'})",
            )

    @property
    def keys(self) -> tuple[str, ...]:
        """The names that every result has, known before anything is measured."""
        return tuple(key for part in self.parts for key in part.keys)

    @property
    def directions(self) -> dict[str, bool]:
        """Whether higher is better, for every name of the result."""
        return {key: better for part in self.parts for key, better in part.directions.items()}

    @property
    def names_more(self) -> bool:
        """Whether results may have further names, which depend on what is seen."""
        return any(part.names_more for part in self.parts)

    def settled(self, **known: Any) -> Combined:
        """Copy the metrics, without what they have seen, and fill in options that were left open.

        Args:
            known: What a trainer knows, by the name of the option: a tokenizer, the names of labels.

        Returns:
            The copies, combined.
        """
        return Combined([part.settled(**known) for part in self.parts])

    def update(self, predictions: Any, references: Any) -> None:
        """Add one batch to every metric.

        Args:
            predictions: The predictions of the batch.
            references: Its labels.
        """
        for part in self.parts:
            part.update(predictions, references)

    def compute(self) -> dict[str, float]:
        """Return the results for all batches since the last reset."""
        return {key: value for part in self.parts for key, value in part.compute().items()}

    def reset(self) -> None:
        """Forget all batches."""
        for part in self.parts:
            part.reset()

    def state(self) -> State:
        """Return what was seen, as numbers and numeric arrays: for another process, or to continue later."""
        return {
            f"{number}.{key}": value for number, part in enumerate(self.parts) for key, value in part.state().items()
        }

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add what another copy of this combination has seen.

        Args:
            state: The `state()` of the copy.
        """
        for number, part in enumerate(self.parts):
            prefix = f"{number}."
            part.merge({key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)})

    def __call__(self, prediction: Any, *, compute_result: bool | None = None) -> dict[str, float]:
        """As a `compute_metrics` function: the results for this prediction alone (see `Metric`)."""
        return compute_metrics_result(self, prediction, compute_result)
