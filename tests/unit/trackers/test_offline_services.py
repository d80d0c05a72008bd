"""Comet, ClearML, DVCLive, Neptune and SwanLab, each with its own package, offline: what was logged is in its files.

None of the packages is among those that the tests need. Where one is installed its test runs; where it is not, what is
said then is tested instead. Each runs in a process of its own: they leave threads, and files in the home directory.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ostinato
from ostinato.arguments.tracker_names import KNOWN, is_installed
from ostinato.trackers import find_callback_class
from ostinato.trackers.base import rewrite_logs

SCRIPT = """
import json, sys, torch, ostinato

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.inner(x), labels)}

torch.manual_seed(0)
rows = [{"x": torch.tensor([i / 10]), "labels": torch.tensor([i / 5])} for i in range(16)]
args = ostinato.TrainingArguments(
    "out", report_to=[sys.argv[1]], logging_steps=1, max_steps=3, eval_strategy="steps", eval_steps=3,
    run_name="first", save_strategy="no", use_cpu=True, disable_tqdm=True,
)
trainer = ostinato.Trainer(Line(), args, train_dataset=rows, eval_dataset=rows[:4])
trainer.train()
with open("history.json", "w") as file:
    json.dump(trainer.state.log_history, file)
"""
OFFLINE = {
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
    "COMET_API_KEY": "none",
    "SWANLAB_MODE": "offline",
    "NEPTUNE_MODE": "offline",
    "NEPTUNE_PROJECT": "nobody/nothing",
}

Points = set[tuple[int, str, float]]


def comet(home: Path) -> Points:
    with zipfile.ZipFile(next((home / "comet").glob("*.zip"))) as archive:
        messages = [json.loads(line) for line in archive.read("messages.json").splitlines()]
    metrics = [message["payload"]["metric"] for message in messages if message["type"] == "metric_msg"]
    return {(one["step"], one["metricName"], one["metricValue"]) for one in metrics if "/" in one["metricName"]}


def clearml(home: Path) -> Points:
    lines = next((home / "cache" / "offline").glob("*/metrics.jsonl")).read_text().splitlines()
    events = [event for line in lines for event in json.loads(line)]
    ours = [event for event in events if event["variant"] in ("train", "eval")]  # others watch the machine
    return {(event["iter"], f"{event['variant']}/{event['metric']}", event["value"]) for event in ours}


def dvclive(home: Path) -> Points:
    found: Points = set()
    for path in (home / "dvclive" / "plots" / "metrics").rglob("*.tsv"):
        header, *lines = [line.split("\t") for line in path.read_text().splitlines()]
        for line in lines:
            cells = dict(zip(header, line, strict=True))
            found.add((int(cells["step"]), f"{path.parent.name}/{path.stem}", float(cells[path.stem])))
    return found


def neptune(home: Path) -> Points:
    lines = next((home / ".neptune" / "offline").glob("*/data-1.log")).read_text().splitlines()
    operations = [json.loads(line)["obj"] for line in lines]
    return {
        (int(value["step"]), "/".join(one["path"][1:]), value["value"])
        for one in operations
        if one["type"] == "LogFloats" and one["path"][0] == "finetuning"
        for value in one["values"]
    }


READERS: dict[str, Callable[[Path], Points]] = {
    "comet_ml": comet,
    "clearml": clearml,
    "dvclive": dvclive,
    "neptune": neptune,
}


def train(name: str, home: Path) -> list[dict[str, Any]]:
    """A run that reports to this tracker, in its own home; what it logged."""
    if not is_installed(name):
        pytest.skip(f"the package of {name} is not installed")
    places = {
        "HOME": home,
        "PYTHONPATH": Path(ostinato.__file__).parents[1],
        "CLEARML_CACHE_DIR": home / "cache",
        "COMET_OFFLINE_DIRECTORY": home / "comet",
    }
    environment = {**os.environ, **OFFLINE, **{key: str(place) for key, place in places.items()}}
    words = [sys.executable, "-c", SCRIPT, name]
    done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "the tracker" not in done.stderr, done.stderr  # which is how a failing one is told
    return json.loads((home / "history.json").read_text())


@pytest.mark.parametrize("name", READERS)
@pytest.mark.timeout(300)
def test_files_of_a_service_have_what_was_logged(name: str, tmp_path: Path) -> None:
    history = train(name, tmp_path)
    steps = [log.pop("step") for log in history]
    logged = [(step, name, value) for step, log in zip(steps, history, strict=True) for name, value in log.items()]
    expected = {(step, next(iter(rewrite_logs({name: value}))), value) for step, name, value in logged}
    found = READERS[name](tmp_path)
    assert found == expected


@pytest.mark.timeout(300)
def test_the_file_of_swanlab_has_what_was_logged(tmp_path: Path) -> None:
    history = train("swanlab", tmp_path)
    content = next((tmp_path / "swanlog").glob("*/*.swanlab")).read_bytes()
    for name in ("loss", "grad_norm", "learning_rate"):
        assert f"train/{name}".encode() in content
        assert all(struct.pack("<d", log[name]) in content for log in history if name in log)
    assert b"eval/loss" in content


@pytest.mark.parametrize("name", [*READERS, "swanlab"])
def test_a_missing_package_is_an_error(name: str) -> None:
    if is_installed(name):
        pytest.skip(f"the package of {name} is installed")
    with pytest.raises(RuntimeError, match=f"pip install {KNOWN[name][1]}"):
        find_callback_class(name)()
