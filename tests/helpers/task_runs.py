"""Recipes run beside plain programs of transformers: what both log, and the weights they end with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

_TIMED = ("_runtime", "_per_second")


def logged(trainer: Any) -> list[dict[str, Any]]:
    """What a trainer has logged, but for times."""
    return [
        {name: value for name, value in entry.items() if not name.endswith(_TIMED)}
        for entry in trainer.state.log_history
    ]


def measured(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics without times and without what only scripts add."""
    return {
        name: value for name, value in metrics.items() if not name.endswith((*_TIMED, "_samples")) and name != "epoch"
    }


def assert_same_run(ours: Any, theirs: Any) -> None:
    """Every loss, gradient norm, rate and metric, and every weight, to the last bit."""
    assert logged(ours) == logged(theirs)
    mine, other = ours.model.state_dict(), theirs.model.state_dict()
    assert list(mine) == list(other)
    different = [name for name in mine if not torch.equal(mine[name], other[name])]
    assert not different


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
