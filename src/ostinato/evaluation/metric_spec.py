"""The parsed `compute_metrics=` and `metrics=`: a function, names, streaming metrics, or "auto"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import metrics as builtin_metrics
from ..core.errors import MetricError
from ..metrics.adapters import Stream
from ..metrics.base import is_streaming

AUTO = "auto"


@dataclass(frozen=True)
class MetricSpec:
    """The requested metrics.

    A function gets all rows at the end, streaming metrics get every batch, and `auto` chooses metrics that fit.
    """

    function: Callable[..., Any] | None = None
    streams: tuple[Stream, ...] = ()
    auto: bool = False

    def __bool__(self) -> bool:
        return self.function is not None or bool(self.streams) or self.auto

    @property
    def names(self) -> tuple[str, ...] | None:
        """All names of results; None if only an evaluation can determine them."""
        known = [stream.keys for stream in self.streams]
        if self.function is not None or self.auto or None in known:
            return None
        return tuple(name for keys in known for name in keys or ())

    @property
    def directions(self) -> dict[str, bool]:
        """Whether greater is better, by name, where it is known."""
        return {name: better for stream in self.streams for name, better in stream.directions.items()}


def parse_metrics(compute_metrics: Any = None, metrics: Any = None) -> MetricSpec:
    """Parse both arguments; raise if one is invalid.

    >>> parse_metrics(metrics=["f1", ("accuracy", {"name": "hits"})]).names
    ('f1', 'hits')
    >>> parse_metrics(compute_metrics="auto").auto
    True
    """
    function = compute_metrics if _is_function(compute_metrics) else None
    entries = [*([] if function is not None else _list_entries(compute_metrics)), *_list_entries(metrics)]
    named = [entry for entry in entries if not _is_auto(entry)]
    streams = tuple(map(_build_stream, named))
    _check_names(streams)
    return MetricSpec(function, streams, auto=len(named) < len(entries))


def _is_function(given: Any) -> bool:
    uncalled = isinstance(given, type) and all(callable(getattr(given, name, None)) for name in ("update", "compute"))
    return callable(given) and not is_streaming(given) and not uncalled


def _list_entries(given: Any) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, Mapping):
        return list(given.items())
    if isinstance(given, str) or is_streaming(given) or not isinstance(given, Iterable) or _is_pair(given):
        return [given]
    return list(given)


def _is_auto(entry: Any) -> bool:
    return isinstance(entry, str) and entry.strip().casefold() == AUTO


def _is_pair(given: Any) -> bool:
    """Return whether it is a pair: `("f1", {"average": "macro"})`, or a name and a metric."""
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str) and not isinstance(given[1], str)


def _build_stream(entry: Any) -> Stream:
    if isinstance(entry, str):
        return Stream.wrap(_build_named(entry, {}))
    if _is_pair(entry):
        name, given = entry
        return Stream.wrap(_build_named(name, given)) if isinstance(given, Mapping) else Stream.wrap(given, name)
    return Stream.wrap(entry)


def _build_named(name: str, options: Mapping[str, Any]) -> Any:
    try:
        return builtin_metrics.metric(name, **options)
    except MetricError as error:
        if not error.what.startswith("there is no metric"):
            raise
        raise MetricError(
            what=error.what,
            why=error.why,
            fix=f"choose among {', '.join(builtin_metrics.available())}, or 'auto'",
        ) from None


def _check_names(streams: tuple[Stream, ...]) -> None:
    seen: set[str] = set()
    for name in (name for stream in streams for name in stream.keys or ()):
        if name in seen:
            raise build_name_error(name, "two metrics")
        seen.add(name)


def build_name_error(name: str, who: str) -> MetricError:
    """Return the error for two results with one name."""
    return MetricError(
        what=f"{who} give the result {name!r}",
        why="each number needs a name of its own, under which it is logged and compared",
        fix=f"give one another name: ({name!r}, {{'name': 'my_{name}'}}), or leave one of them out",
    )
