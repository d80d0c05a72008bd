"""What every tracker's own reader gives back after SIGKILL in the middle of a run, and a second process to its end."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ostinato.trackers.base import rewrite_logs
from ostinato.trackers.sink import TIMED_SUFFIXES
from ostinato.trackers.wandb_files import find_run_files, read_history
from tests.support.launcher import ROOT

SCRIPT = Path(__file__).with_name("tracked_run.py")
PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "sqlalchemy", "trackio": "trackio"}
THERE = [name for name, package in PACKAGES.items() if find_spec(name) and find_spec(package)]
CHECKPOINT, KILLED, END = 4, 7, 10

Points = list[tuple[int, str, float]]


def environment(directory: Path) -> dict[str, str]:
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(directory),
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": f"sqlite:///{directory}/mlflow.db",
        "TRACKIO_DIR": str(directory / "trackio"),
        "HOME": str(directory),
    }


@pytest.fixture(scope="module")
def killed_run(tmp_path_factory) -> tuple[Path, Points]:
    """The directory of a run that was killed and resumed, and what was logged in it."""
    directory = tmp_path_factory.mktemp("tracked")
    command = [sys.executable, str(SCRIPT), str(directory), str(KILLED), "csv", "jsonl", *THERE]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(directory), cwd=directory)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((directory / "codes.json").read_text()) == [-signal.SIGKILL, 0], ended.stderr
    assert "the tracker" not in ended.stderr, ended.stderr
    entries = json.loads((directory / "history.json").read_text())
    points = [
        (entry["step"], name, value)
        for entry in entries
        for name, value in rewrite_logs(entry).items()
        if name != "train/step"
    ]
    assert {step for step, _, _ in points} == set(range(1, END + 1))
    return directory, points


def needs(name: str):
    return pytest.mark.skipif(name not in THERE, reason=f"{name} is not installed")


# What the trackers' own packages warn about is not ours to judge.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def assert_same(found: Points, logged: Points, *, first_attempt_stays: bool = False) -> None:
    """Every point once. What a clock says of steps that were taken twice may be of either attempt."""

    def comparable(points: Points) -> Counter:
        return Counter(
            (
                step,
                name,
                None if first_attempt_stays and name.endswith(TIMED_SUFFIXES) and step > CHECKPOINT else value,
            )
            for step, name, value in points
        )

    assert comparable(found) == comparable(logged)
    for name in {name for _, name, _ in found}:
        steps = [step for step, one, _ in found if one == name]
        assert steps == sorted(steps), name


def test_csv(killed_run) -> None:
    directory, logged = killed_run
    with (directory / "run" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = [
        (int(row["step"]), name, float(cell)) for row in rows for name, cell in row.items() if cell and name != "step"
    ]
    assert_same(found, logged)


def test_jsonl(killed_run) -> None:
    directory, logged = killed_run
    lines = [json.loads(line) for line in (directory / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["hyper_parameters"]["run_name"] == "tracked"
    found = [(line["step"], name, value) for line in lines[1:] for name, value in line.items() if name != "step"]
    assert_same(found, logged)


@needs("tensorboard")
def test_tensorboard(killed_run) -> None:
    directory, logged = killed_run
    (runs,) = (directory / "run" / "runs").iterdir()  # one directory: the same run
    accumulator = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(runs), size_guidance={"tensors": 0, "scalars": 0}).Reload()
    found = [(event.step, tag, event.value) for tag in events.Tags()["scalars"] for event in events.Scalars(tag)]
    as_stored = [(step, name, float(np.float32(value))) for step, name, value in logged]  # it stores 32 bits
    assert_same(found, as_stored)
    texts = [tag for tag in events.Tags()["tensors"] if tag.endswith("text_summary")]
    assert texts == ["args/text_summary"]
    assert len(events.Tensors(texts[0])) == 1


@needs("mlflow")
def test_mlflow(killed_run) -> None:
    directory, logged = killed_run
    client = import_module("mlflow").MlflowClient(f"sqlite:///{directory}/mlflow.db")
    (run,) = [run for one in client.search_experiments() for run in client.search_runs([one.experiment_id])]
    assert (run.info.status, run.info.run_name) == ("FINISHED", "tracked")
    assert run.data.params["learning_rate"] == "5e-05"
    found = [
        (point.step, name, point.value)
        for name in run.data.metrics
        for point in client.get_metric_history(run.info.run_id, name)
    ]
    assert_same(found, logged, first_attempt_stays=True)


@needs("wandb")
def test_wandb(killed_run) -> None:
    directory, logged = killed_run
    (run_id,) = {path.name.removeprefix("run-") for path in directory.glob("wandb/offline-run-*/run-*.wandb")}
    files = find_run_files(directory / "wandb", run_id.removesuffix(".wandb"))
    assert len(files) == 2  # each process writes a file of its own for the same run
    rows = [row for path in files for row in read_history(path)]
    assert [row["_step"] for row in rows] == list(range(len(rows)))
    found = [
        (row["train/global_step"], name, value)
        for row in rows
        for name, value in row.items()
        if not name.startswith("_") and name != "train/global_step"
    ]
    assert_same(found, logged, first_attempt_stays=True)


@needs("trackio")
def test_trackio(killed_run, monkeypatch) -> None:
    directory, logged = killed_run
    store = import_module("trackio.sqlite_storage").SQLiteStorage
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", directory / "trackio")
    assert store.get_runs("faults") == ["tracked"]
    found = [
        (row["step"], name, value)
        for row in store.get_logs("faults", "tracked")
        for name, value in row.items()
        if name not in ("step", "timestamp")
    ]
    assert_same(found, logged, first_attempt_stays=True)
