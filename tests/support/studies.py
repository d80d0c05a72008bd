"""The record of a search, written as a search writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ostinato.journal.study_record import StudyWriter


def write_study(directory: Path, directions: tuple[str, ...] = ("minimize",), trials: int = 8) -> None:
    """Write trials of which one has failed, one is pruned, and the last has not ended."""
    writer = StudyWriter(directory, "search")
    space = [{"name": "learning_rate", "kind": "float", "low": 1e-5, "high": 1e-1, "step": None, "log": True}]
    names = [f"metric <{index}>" for index, _ in enumerate(directions)]
    writer.write(
        "study", backend="optuna", engine="TPESampler", directions=list(directions), objectives=names,
        num_trials=trials, space=space,
    )  # fmt: skip
    for number in range(trials):
        params = {"learning_rate": 10.0 ** -(1 + number / 2), "optim": "<script>" if number % 2 else "sgd"}
        writer.write(
            "trial", number=number, id=str(number), name=f"run-{number}", directory=f"run-{number}", params=params
        )
        values = [float(number + 1) * (index + 1) for index, _ in enumerate(directions)]
        writer.write("value", number=number, step=4, epoch=1.0, values=values)
        state: dict[str, Any] = {"state": "complete", "values": values, "reason": None}
        if number == 2:
            reason = {"type": "RuntimeError", "text": "<img src=x onerror=alert(1)>"}
            state = {"state": "failed", "values": None, "reason": reason}
        elif number == 3:
            state["state"] = "pruned"
        if number < trials - 1:
            writer.write(
                "end", number=number, params=params, step=4, steps=8, seconds=0.5, metrics={}, weights=None, **state
            )
    writer.close()
