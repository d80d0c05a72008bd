"""`ostinato search`: the search takes the place of a script's `train()`."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

import pytest
import torch

from ostinato import Trainer, TrainingArguments
from ostinato.cli import _split_script_options
from ostinato.cli.script_runner import TrainerStarted
from ostinato.cli.search_options import add_search_options, run_search
from ostinato.journal.study_record import read_study
from tests.support import tiny

pytest.importorskip("optuna")


def run(directory: Path, space: str, *words: str, has_optimizer: bool = False) -> int:
    """Run what stands for a script: a trainer with a model, whose `train()` it calls."""
    parser = argparse.ArgumentParser()
    add_search_options(parser)
    (directory / "space.json").write_text(space)

    def script() -> int:
        args = TrainingArguments(str(directory / "out"), use_cpu=True, report_to="none", save_strategy="no")
        rows = tiny.regression_rows(16)
        model = tiny.regression()
        with contextlib.suppress(TrainerStarted):
            optimizers = (torch.optim.SGD(model.parameters(), 0.1), None) if has_optimizer else (None, None)
            Trainer(model, args, train_dataset=rows, eval_dataset=rows[:8], optimizers=optimizers).train()
            raise AssertionError("the script went on")
        return 0

    return run_search(script, "train.py", str(directory / "space.json"), parser.parse_args(words))


def test_a_script_with_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = '{"learning_rate": {"low": 1e-4, "high": 0.1, "log": true}}'
    assert run(tmp_path, space, "--plan", "--trials", "7") == 0
    plan = capsys.readouterr().out
    assert "7 trials, minimize eval_loss" in plan
    assert "learning_rate: 0.0001 to 0.1, logarithmic" in plan
    assert "a trial takes" in plan
    assert not (tmp_path / "out" / "search").exists()
    assert run(tmp_path, space, "--trials", "2", "--sampler-seed", "1") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("best: trial")
    assert [one.state for one in read_study(tmp_path / "out").trials] == ["complete"] * 2


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, '{"learnig_rate": [0.1]}') == 1
    assert "did you mean 'learning_rate'" in capsys.readouterr().err
    assert run(tmp_path, '{"learning_rate": [0.1]}', has_optimizer=True) == 1
    assert "every trial has its own" in capsys.readouterr().err
    options = argparse.ArgumentParser()
    add_search_options(options)
    assert run_search(lambda: 0, "train.py", "space.json", options.parse_args([])) == 3
    assert "ended before its trainer started" in capsys.readouterr().err


def test_the_options_of_the_script_follow_two_dashes() -> None:
    assert _split_script_options(["search", "a.py", "--", "--seed", "1"]) == (["search", "a.py"], ["--seed", "1"])
    assert _split_script_options(["search", "a.py"]) == (["search", "a.py"], None)
    assert _split_script_options(["exec", "a.py", "--", "--seed"]) == (["exec", "a.py", "--", "--seed"], None)
