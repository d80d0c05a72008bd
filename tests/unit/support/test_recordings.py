"""Recordings on the disk: where they hold, what is kept, what is dropped."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import numerics_probe
from tests.support.numerics_probe import probe_numerics
from tests.support.recordings import Recordings, describe_environment

ENVIRONMENT = {
    "format": 1,
    "versions": {"transformers": "5.1", "torch": "2.1"},
    "numerics": {"cpu_capability": "AVX2", "threads": 1, "results": "abc"},
}


def entry(value: Any) -> dict[str, Any]:
    return {"source": "0", "calls": [{"of": "script", "value": value}]}


def open_with(folder: Path, change: Callable[[Any], Any] = lambda environment: None) -> Recordings:
    environment = copy.deepcopy(ENVIRONMENT)
    change(environment)
    return Recordings(folder, environment)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which something is recorded."""
    recordings = open_with(tmp_path / "recorded")
    assert recordings.explain_unusable() == "nothing is recorded: run make record"
    recordings.begin()
    recordings.update("contract/test_a.py", {"test_a": entry(1), "test_b[x/y]": entry([2] * 400)}, lambda *_: True)
    return tmp_path / "recorded"


def test_found_again(folder: Path) -> None:
    recordings = open_with(folder)
    assert recordings.explain_unusable() is None
    assert recordings.find("contract/test_a.py", "test_b[x/y]") == entry([2] * 400)
    assert recordings.find("contract/test_a.py", "test_c") is None
    assert recordings.find("contract/test_b.py", "test_a") is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda now: now["versions"].update(transformers="5.2"),
            "transformers 5.2 is installed, recorded was 5.1: run make record",
        ),
        (lambda now: now["versions"].update(torch="2.2"), "torch 2.2 is installed, recorded was 2.1: run make record"),
        (lambda now: now["versions"].update(peft="1"), "peft 1 is installed, recorded was none: run make record"),
        (
            lambda now: now["numerics"].update(results="abd"),
            "this CPU computes other numbers than the recording's",
        ),
        (
            lambda now: now["numerics"].update(cpu_capability="AVX512"),
            "this CPU computes other numbers than the recording's",
        ),
        (lambda now: now.update(format=0), "the recordings have another format: run make record"),
    ],
)
def test_where_they_do_not_hold(folder: Path, change: Callable[[Any], Any], reason: str) -> None:
    recordings = open_with(folder, change)
    assert recordings.explain_unusable() == reason
    recordings.begin()
    assert recordings.explain_unusable() is None
    assert recordings.find("contract/test_a.py", "test_a") is None, "it was recorded in another environment"


def test_recording_some_tests_again(folder: Path) -> None:
    recordings = open_with(folder)
    recordings.begin()
    recordings.update("contract/test_a.py", {"test_c": entry(3)}, lambda name, _: name == "test_a")
    found = json.loads((folder / "contract/test_a.json").read_text())["tests"]
    assert {name: one["calls"][0]["value"] for name, one in found.items()} == {"test_a": 1, "test_c": 3}


def test_files_of_tests_that_are_no_more(folder: Path) -> None:
    recordings = open_with(folder)
    recordings.remove_unless(lambda file: file != "contract/test_a.py")
    assert sorted(path.name for path in folder.rglob("*.json")) == ["environment.json"]


def test_what_occurs_twice_is_written_once(folder: Path) -> None:
    recordings = open_with(folder)
    long = [f"line {number}" for number in range(100)]
    tests = {f"test_{number}": entry({"lines": long, "number": number}) for number in range(5)}
    recordings.update("contract/test_b.py", tests, lambda *_: True)
    text = (folder / "contract/test_b.json").read_text()
    assert text.count("line 99") == 1
    for name, one in tests.items():
        assert open_with(folder).find("contract/test_b.py", name) == one


def test_the_environment() -> None:
    found = describe_environment()
    assert found["versions"]["torch"] == torch.__version__.partition("+")[0]
    assert found["numerics"]["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert json.loads(json.dumps(found)) == found


def test_the_probe_sees_a_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    state = torch.random.get_rng_state()
    usual = probe_numerics.__wrapped__()
    assert probe_numerics.__wrapped__() == usual
    assert torch.equal(torch.random.get_rng_state(), state)
    tanh = torch.tanh
    monkeypatch.setattr(torch, "tanh", lambda x: tanh(x).nextafter(torch.ones_like(x)) if x.dtype.itemsize > 2 else x)
    assert numerics_probe.probe_numerics.__wrapped__()["results"] != usual["results"]
