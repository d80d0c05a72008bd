"""Format metrics for users, and write them to files."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from .notices import warn


def metrics_format(metrics: dict[str, Any]) -> dict[str, Any]:
    """Format durations as h:mm:ss, memory in MB, operations in GF, floats to four places.

    Args:
        metrics: The metrics by name.

    Returns:
        The metrics in readable form, under the same names.

    >>> metrics_format({"train_runtime": 3723.0, "train_loss": 0.123456})
    {'train_runtime': '1:02:03.00', 'train_loss': 0.1235}
    """
    return {name: _format_value(name, value) for name, value in metrics.items()}


def _format_value(name: str, value: Any) -> Any:
    if "_mem_" in name:
        return f"{int(value) >> 20}MB"
    if "_runtime" in name:
        return _format_duration(value)
    if name == "total_flos":
        return f"{int(value) >> 30}GF"
    return round(value, 4) if isinstance(value, float) else value


def _format_duration(seconds: float) -> str:
    whole, fraction = divmod(int(seconds * 100), 100)
    return f"{datetime.timedelta(seconds=whole)}.{fraction:02d}"


def format_metrics_table(split: str, metrics: dict[str, Any]) -> str:
    """Return the lines that `log_metrics` prints."""
    readable = metrics_format(metrics)
    names = max((len(name) for name in readable), default=0)
    values = max((len(str(value)) for value in readable.values()), default=0)
    lines = [f"  {name: <{names}} = {readable[name]!s:>{values}}" for name in sorted(readable)]
    return "\n".join([f"***** {split} metrics *****", *lines])


def write_metrics(directory: Path, split: str, metrics: dict[str, Any], *, combined: bool) -> None:
    """Write `{split}_results.json`, and add the same to `all_results.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_json(directory / f"{split}_results.json", metrics)
    if combined:
        path = directory / "all_results.json"
        _write_json(path, {**_read_results(path), **metrics})


def _read_results(path: Path) -> dict[str, Any]:
    """Return the earlier results. A truncated file, as after a full disk, must not prevent writing the new ones."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        warn(f"{path} holds no readable results and is overwritten")
        return {}
    return found


def _write_json(path: Path, metrics: dict[str, Any]) -> None:
    path.write_text(json.dumps(metrics, indent=4, sort_keys=True), encoding="utf-8")
