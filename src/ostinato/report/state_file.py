"""Reader of `trainer_state.json`, for a run without a journal: yields its content as the events of a journal.

Both transformers and Ostinato write this file into every checkpoint. It holds everything that was logged, but neither
arguments nor times, and not how the run ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STATE_NAME = "trainer_state.json"
_FINAL_LOG_NAME = "train_runtime"  # logged when training is over


def find_state_path(place: Path) -> Path | None:
    """Return the latest state of a run in a directory: its own or its last checkpoint's; None if there is none."""
    found = [path for path in (place / STATE_NAME, *place.glob(f"checkpoint-*/{STATE_NAME}")) if path.is_file()]
    return max(found, key=_rank_state, default=None)


def _rank_state(path: Path) -> tuple[bool, int]:
    if not path.parent.name.startswith("checkpoint-"):
        return True, 0
    number = path.parent.name.removeprefix("checkpoint-")
    return False, int(number) if number.isdecimal() else -1


def read_state_events(path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield what was logged as the events of a journal; None if the file is not a state."""
    try:
        state = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        yield None
        return
    head = {"v": 1, "run": "unknown"}
    plan = {"steps": state.get("max_steps"), "epochs": state.get("num_train_epochs")}
    yield {**head, "event": "start", "step": 0, "plan": plan, "name": _find_run_name(path)}
    is_over = False
    for entry in state["log_history"]:
        if not isinstance(entry, dict):
            yield None
            continue
        when = {"step": entry.get("step"), "epoch": entry.get("epoch")}
        numbers = {name: value for name, value in entry.items() if name not in when}
        yield {**head, "event": "log", **when, "logs": numbers}
        if any(name.startswith("eval_") for name in numbers):
            yield {**head, "event": "evaluation", **when, "metrics": numbers}
        is_over = is_over or _FINAL_LOG_NAME in numbers
    best = {"step": state.get("best_global_step"), "value": state.get("best_metric")}
    yield {**head, "event": "best", **best, "metric": _find_best_metric(best, state["log_history"])}
    if is_over:
        yield {**head, "event": "end", "step": state.get("global_step"), "epoch": state.get("epoch")}


def _find_run_name(path: Path) -> str:
    folder = path.resolve().parent
    return folder.parent.name if folder.name.startswith("checkpoint-") else folder.name


def _find_best_metric(best: dict[str, Any], entries: list[Any]) -> str:
    """Return the metric that had the best value at the best step: the state does not name it."""
    for entry in entries:
        if isinstance(entry, dict) and entry.get("step") == best["step"]:
            for name, value in entry.items():
                if name.startswith("eval_") and value == best["value"]:
                    return name
    return "metric"
