"""Lines that are whole or not there, on disks that are full, read-only or cut off; JSON whatever is logged."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.journal import environment, writer
from ostinato.journal.writer import JournalFile, format_json, format_numbers_json


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_appended_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "events.jsonl"
    for number in range(2):
        journal = JournalFile(path)
        journal.append({"event": "log", "number": number})
        journal.close()
    assert [line["number"] for line in lines(path)] == [0, 1]


def test_a_torn_line_is_terminated(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event":"log","step":1}\n{"event":"lo')
    journal = JournalFile(path)
    journal.append({"step": 3})
    journal.append({"step": 4})
    journal.close()
    assert path.read_bytes() == b'{"event":"log","step":1}\n{"event":"lo\n{"step":3}\n{"step":4}\n'


def test_a_line_is_written_by_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    real = os.write
    monkeypatch.setattr(writer.os, "write", lambda where, data: (written.append(data), real(where, data))[1])
    journal = JournalFile(tmp_path / "events.jsonl")
    journal.append({"text": "ä" * 10_000})
    journal.close()
    assert len(written) == 1 and written[0].endswith(b"\n") and written[0].count(b"\n") == 1


def test_two_processes_do_not_tear_one_another_s_lines(tmp_path: Path) -> None:
    code = (
        "import sys; from ostinato.journal.writer import JournalFile\n"
        "journal = JournalFile(sys.argv[1])\n"
        "for number in range(300): journal.append({'who': sys.argv[2], 'number': number, 'text': sys.argv[2] * 3000})"
    )
    path = tmp_path / "events.jsonl"
    started = [subprocess.Popen([sys.executable, "-c", code, str(path), who]) for who in "ab"]
    assert [one.wait(120) for one in started] == [0, 0]
    # Who opens the file while the other writes may take that line for half a one, and end it: an empty line.
    found = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines() if line]
    assert len(found) == 600
    assert all(set(line["text"]) == {line["who"]} for line in found)


class FullDisk:
    """Takes so many bytes of each line while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes: int) -> None:
        self.is_full, self.takes, self.real = False, takes, os.write
        monkeypatch.setattr(writer.os, "write", self.write)

    def write(self, where: int, data: bytes) -> int:
        if not self.is_full:
            return self.real(where, data)
        if self.takes:
            return self.real(where, data[: self.takes])
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("takes", [0, 5])
def test_a_full_disk_warns_once_and_the_gap_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, takes: int
) -> None:
    disk, path = FullDisk(monkeypatch, takes), tmp_path / "events.jsonl"
    journal = JournalFile(path)
    journal.append({"v": 1, "run": "a", "step": 1})
    disk.is_full = True
    for step in (2, 3, 4):
        journal.append({"v": 1, "run": "a", "step": step})
    disk.is_full = False
    journal.append({"v": 1, "run": "a", "step": 5})
    journal.close()
    whole = [line for line in path.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
    assert [json.loads(line).get("step", json.loads(line).get("event")) for line in whole] == [1, "gap", 5]
    assert json.loads(whole[1]) == {"v": 1, "run": "a", "event": "gap", "lines": 3}
    assert capsys.readouterr().err.count("could not be written") == 1


@pytest.mark.parametrize("obstacle", ["a file where the directory should be", "a directory of that name"])
def test_an_unwritable_directory(tmp_path: Path, capsys: Any, obstacle: str) -> None:
    path = tmp_path / "out" / "events.jsonl"
    if obstacle.startswith("a file"):
        path.parent.write_text("")
    else:
        path.mkdir(parents=True)
    journal = JournalFile(path)
    for _ in range(3):
        journal.append({"step": 1})
    journal.close()
    assert capsys.readouterr().err.count("ostinato:") == 1


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), "NaN"),
        (np.int64(7), 7),
        (torch.tensor(0.25), 0.25),
        (torch.tensor([1.0, 2.0]), "tensor([1., 2.])"),
        (Path("a"), "a"),
        ((1, math.nan), [1, "NaN"]),
        ({1: {"x": math.inf}}, {"1": {"x": "Infinity"}}),
        ("\ud800 ", "\ud800 "),
        (True, True),
        (None, None),
        (10**30, 10**30),
        pytest.param(10**5_000, "an integer of 16610 bits", id="huge"),
    ],
)
def test_whatever_is_logged_becomes_json(value: Any, written: Any) -> None:
    line = format_json({"value": value})
    assert "\n" not in line
    assert json.loads(line, parse_constant=pytest.fail)["value"] == written


def test_what_cannot_even_be_printed() -> None:
    class Shy:
        def __str__(self) -> str:
            raise RuntimeError

    circle: dict[str, Any] = {}
    circle["circle"] = circle
    assert json.loads(format_json({"value": Shy()})) == {"value": "<Shy>"}
    assert format_json(circle).startswith('{"circle":')


def test_floats_come_back_bit_for_bit() -> None:
    for value in (0.1, 1 / 3, 5e-324, 1.7976931348623157e308, float(np.float32(0.1))):
        assert json.loads(format_json({"value": value}))["value"] == value


@pytest.mark.parametrize(
    "numbers",
    [
        {"loss": 0.1, "tokens": 3, 'ünï "x"\n': -0.0},
        {},
        {"loss": math.nan},
        {"loss": 10**400},
        pytest.param({"loss": 10**5_000}, id="huge"),
        {"flag": True},
        {"loss": np.float64(0.5)},
        {1: 2.0},
        {"nested": {"a": 1}},
        [1.0],
    ],
)
def test_numbers_are_written_like_everything_else(numbers: Any) -> None:
    assert format_numbers_json(numbers) == format_json(numbers)


@pytest.mark.parametrize(
    ("value", "written"), [(5, "5"), (0.1, "0.1"), (None, "null"), (True, "true"), (math.nan, '"NaN"')]
)
def test_a_single_value(value: Any, written: str) -> None:
    assert format_json(value) == written
    assert format_json(10**5_000) == '"an integer of 16610 bits"'


def test_memory_is_measured_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [100.0], iter(range(1, 100))
    monkeypatch.setattr(environment, "monotonic", lambda: now[0])
    monkeypatch.setattr(environment, "read_resident_bytes", lambda: next(looks))
    gauge = environment.MemoryGauge(torch.device("cpu"))
    seen = []
    for _ in range(200):
        seen.append(gauge.read()["rss"])
        now[0] += 0.005
    assert seen[0] == 1 and seen[-1] == 4


@pytest.mark.parametrize(("nodes", "expected"), [("2", 2), ("", 1), ("many", 1)])
def test_the_launcher_is_described(monkeypatch: pytest.MonkeyPatch, nodes: str, expected: int) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert environment.describe_command()["launcher"] is None
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "GROUP_WORLD_SIZE": nodes, "LOCAL_WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    assert environment.describe_command()["launcher"] == {"name": "torchrun", "nodes": expected, "per_node": 8}
