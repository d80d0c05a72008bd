"""A search that is killed goes on: nothing is trained twice, and the best is that of a search that was not killed.

`make long` kills a search of twelve trials at ten moments; otherwise one of five trials at two.
"""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from ostinato.journal.study_record import read_study
from tests.support.long_tests import LONG
from tests.support.searches import finish_search, start_search

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)

TRIALS, KILLS, LATEST = (12, 10, 0.03) if LONG else (5, 2, 0.02)


def read_states(directory: Path) -> list[str]:
    from ostinato.search.study_log import open_storage

    study = optuna.load_study(study_name="search", storage=open_storage(directory / "search"))
    return [one.state.name for one in study.trials]


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


def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    expected = finish_search(start_search(whole, TRIALS))
    draw = random.Random(0)
    for _ in range(KILLS):
        process = start_search(killed, TRIALS, killed_after=draw.uniform(0.002, LATEST))
        _, err = process.communicate()
        assert process.returncode == -signal.SIGPROF, err
    assert finish_search(start_search(killed, TRIALS)) == expected
    assert summarize(killed) == summarize(whole)
    assert read_states(killed) == read_states(whole)
    assert sum(one.times_begun for one in read_study(killed).trials) > TRIALS  # it was broken off during a trial
    ends = [json.loads(line) for line in (killed / "search" / "study.jsonl").read_text().splitlines()]
    ended = [entry["number"] for entry in ends if entry["event"] == "end"]
    assert sorted(ended) == list(range(TRIALS))


def test_two_workers_share_the_trials(tmp_path: Path) -> None:
    workers = [start_search(tmp_path, 6) for _ in range(2)]
    lines = [finish_search(worker) for worker in workers]
    assert lines[0] == lines[1]
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
