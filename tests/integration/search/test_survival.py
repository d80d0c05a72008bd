"""A search that is killed goes on: nothing is trained twice, and the best is that of a search that was not killed.

`make long` kills a search of twelve trials at ten moments; otherwise one of five trials at two.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ostinato.journal.study_record import read_study
from tests.support.launcher import MOST, run
from tests.support.long_tests import LONG, long_only

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)

PROGRAM = Path(__file__).with_name("search_program.py")
TRIALS, KILLS, LATEST = (12, 10, 0.03) if LONG else (5, 2, 0.02)


def run_search(directory: Path, trials: int, *seconds: float, workers: int = 1) -> subprocess.CompletedProcess[str]:
    """Run a search in a process of its own; it is killed after some seconds of computing since its first trial."""
    imports = (*MOST, "ostinato.search.optuna_engine", "tests.support.searches")
    return run(PROGRAM, directory, trials, workers, *seconds, imports=imports)


def find_best(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines of the best trials, one for each worker."""
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [line for line in ended.stdout.splitlines() if line.startswith("BEST")]


def open_study(directory: Path, storage: str) -> Any:
    from ostinato.search.study_log import open_storage

    place = open_storage(directory / "search") if storage == "journal" else f"sqlite:///{directory}/study.db"
    return optuna.load_study(study_name="search", storage=place)


def summarize(directory: Path) -> list[tuple[Any, ...]]:
    return [
        (one.number, one.state, one.params, one.values, [(value.step, value.values) for value in one.curve])
        for one in read_study(directory).trials
    ]


def count_lines(directory: Path, event: str) -> int:
    try:
        lines = (directory / "search" / "study.jsonl").read_bytes().splitlines()
    except OSError:
        return 0
    return sum(f'"event":"{event}"'.encode() in line for line in lines)


@pytest.mark.parametrize("storage", ["journal", pytest.param("sqlite", marks=long_only)])
def test_a_killed_search_goes_on(tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if storage == "sqlite":
        monkeypatch.setenv("SQLITE", "1")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    expected = find_best(run_search(whole, TRIALS))
    draw = random.Random(0)
    for _ in range(KILLS):
        ended = run_search(killed, TRIALS, draw.uniform(0.002, LATEST))
        assert ended.returncode == -signal.SIGPROF, ended.stderr
    assert find_best(run_search(killed, TRIALS)) == expected
    assert summarize(killed) == summarize(whole)
    states = [[one.state for one in open_study(place, storage).trials] for place in (killed, whole)]
    assert states[0] == states[1]
    assert sum(one.times_begun for one in read_study(killed).trials) > TRIALS  # it was broken off during a trial
    ends = [json.loads(line) for line in (killed / "search" / "study.jsonl").read_text().splitlines()]
    ended_trials = [entry["number"] for entry in ends if entry["event"] == "end"]
    assert sorted(ended_trials) == list(range(TRIALS))


def test_two_workers_share_the_trials(tmp_path: Path) -> None:
    first, second = find_best(run_search(tmp_path, 6, workers=2))
    assert first == second
    trials = read_study(tmp_path).trials
    assert [one.number for one in trials] == list(range(6))
    assert {one.state for one in trials} <= {"complete", "pruned"}
    assert len({json.dumps(one.params) for one in trials}) == 6
    assert count_lines(tmp_path, "end") == 6


def test_the_file_of_a_study_survives_a_half_line(tmp_path: Path) -> None:
    from ostinato.search.study_log import open_storage

    study = optuna.create_study(storage=open_storage(tmp_path), study_name="search")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    with (tmp_path / "optuna.log").open("ab") as file:
        file.write(b'{"op_code": 4, "worker_id": "abc')
    again = optuna.load_study(storage=open_storage(tmp_path), study_name="search")
    again.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    theirs = JournalStorage(JournalFileBackend(str(tmp_path / "optuna.log")))
    assert [one.number for one in optuna.load_study(storage=theirs, study_name="search").trials] == [0, 1, 2]
