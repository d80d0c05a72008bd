"""Runs without a journal: the page of what `trainer_state.json` tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ostinato.cli import main
from ostinato.report.journal_reader import JournalError, read_run
from ostinato.report.run_page import render_run, write_report

HISTORY = [
    {"epoch": 0.5, "loss": 0.9, "grad_norm": 1.0, "learning_rate": 1e-3, "step": 5},
    {"epoch": 1.0, "loss": 0.5, "grad_norm": 0.8, "learning_rate": 5e-4, "step": 10},
    {"epoch": 1.0, "eval_loss": 0.6, "eval_f1": 0.7, "step": 10},
]
STATE = {"global_step": 10, "max_steps": 20, "num_train_epochs": 2, "epoch": 1.0, "log_history": HISTORY}
BEST = {"best_metric": 0.7, "best_global_step": 10}


def write(folder: Path, state: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


def test_the_last_checkpoint_is_shown(tmp_path: Path, capsys: Any) -> None:
    write(tmp_path / "out" / "checkpoint-5", {**STATE, "log_history": HISTORY[:1]})
    write(tmp_path / "out" / "checkpoint-10", {**STATE, **BEST})
    run = read_run(tmp_path / "out")
    assert run.name == "out" and run.step == 10 and run.outcome == "open"
    assert run.curves["loss"].steps == (5, 10) and run.evaluated_at == (10,)
    assert run.best == {"step": 10, "metric": "eval_f1", "value": 0.7}
    text = render_run(run)
    assert "made from trainer_state.json" in text and "Step 10" in text and "Settings" not in text
    assert "there is no journal" in text and "Nothing was saved" not in text and "No checkpoint" not in text
    assert main(["report", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"written: {tmp_path / 'out' / 'report.html'}\n"


def test_a_run_that_ended(tmp_path: Path) -> None:
    end = {"epoch": 2.0, "train_runtime": 1.0, "train_loss": 0.5, "step": 20}
    write(tmp_path, {**STATE, "global_step": 20, "log_history": [*HISTORY, end]})
    run = read_run(tmp_path)
    assert run.outcome == "finished" and run.step == 20
    assert write_report(tmp_path) == tmp_path / "report.html"


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b'{"log_history": 5}', b"\xff\x00", b"[" * 100_000, b'{"log_history": [1'],
)  # fmt: skip
def test_a_file_that_is_not_a_state(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trainer_state.json").write_bytes(content)
    with pytest.raises(JournalError, match="is not a journal of a run"):
        read_run(tmp_path)


def test_entries_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, {"log_history": [None, 5, {"loss": 1.0}, {"step": "x", "loss": 1.0}, *HISTORY], "max_steps": "y"})
    run = read_run(tmp_path)
    assert run.curves["loss"].steps == (5, 10) and run.bad_lines == 2
    assert render_run(run)
