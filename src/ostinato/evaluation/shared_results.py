"""Results of a metric function that is called in the first of several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..core.errors import MetricError
from .metric_run import MetricRun

_FIX = "metrics_in_all_processes=True lets every process call it"


@contextmanager
def share_results(metric_run: MetricRun, share: Callable[[Any], Any] | None, *, measures: bool) -> Iterator[None]:
    """Give every process the results that the first one computes inside the block; a failure there fails in all.

    `measures`: this is the process that computes them. Without `share`, each process does, for itself.
    """
    if share is None:
        yield
        return
    results: dict[str, Any] | None = None
    try:
        yield
        results = metric_run.results
    finally:
        found = _send(share, results, metric_run.function) if measures else share(None)
    if found is None:
        raise MetricError(
            what="there are no metrics",
            why="the metric function failed in the first process, which calls it",
            fix=f"see the error of that process; {_FIX}",
        )
    metric_run.results = found


def _send(share: Callable[[Any], Any], results: dict[str, Any] | None, function: Any) -> Any:
    """Return the results once the others have them; they are told too if the results cannot be sent."""
    try:
        return share(results)
    except Exception as error:  # before anything was sent
        share(None)
        raise MetricError(
            what=f"{getattr(function, '__name__', 'compute_metrics')} returned what cannot be sent to other processes",
            why=str(error),
            fix=f"return numbers, or {_FIX}",
        ) from error
