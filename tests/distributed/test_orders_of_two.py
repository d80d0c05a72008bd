"""Orders, batches and mixtures on two processes, against one process with the same rows per step."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.support.launcher import launch

WORKER = Path(__file__).with_name("order_worker.py")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Every scenario, once in one process and once in two; starting processes is what costs time here."""
    return run(tmp_path_factory.mktemp("one"), 1), run(tmp_path_factory.mktemp("two"), 2)


def run(out: Path, processes: int) -> Path:
    launch(WORKER, out, processes=processes)
    return out


def alone(reports: tuple[Path, Path], scenario: str) -> dict[str, Any]:
    return json.loads((reports[0] / scenario / "rank-0.json").read_text())


def both(reports: tuple[Path, Path], scenario: str) -> list[dict[str, Any]]:
    return [json.loads((reports[1] / scenario / f"rank-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    "scenario",
    [
        "windows",
        "sampler",
        "random sampler",
        "mixture",
        "mixture, accumulated",
        "mixture, deaf",
        "mixture, whole",
        "mixture, resumed",
        "bad rows",
        "bad rows of a stream",
        "bad rows of a mixture",
        "stream by windows",
    ],
)
def test_two_processes_follow_one(scenario: str, reports: tuple[Path, Path]) -> None:
    """Where steps have the same rows: the losses of all, of each set, and the gradients."""
    single, (first, second) = alone(reports, scenario), both(reports, scenario)
    assert first["weights"] == second["weights"], "the replicas must stay equal, bit for bit"
    if scenario == "random sampler":  # another order than in one process, and the same in both
        assert first["steps"] == single["steps"]
        return
    assert len(first["logs"]) == len(single["logs"]) > 0
    for mine, expected in zip(first["logs"], single["logs"], strict=True):
        assert mine == pytest.approx(expected, rel=2e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("scenario", "count"), [("bad rows", 13), ("bad rows of a stream", 13), ("bad rows of a mixture", 23)]
)
def test_bad_rows_of_all_processes_are_listed_in_each(scenario: str, count: int, reports: tuple[Path, Path]) -> None:
    single, (first, second) = alone(reports, scenario), both(reports, scenario)
    assert first["skipped"] == second["skipped"] == single["skipped"]
    assert len(single["skipped"]) == count
    assert first["steps"] == second["steps"] == single["steps"]
    if scenario == "bad rows":
        assert single["steps"] == 2 * 7, "a step without a row that can be read is not taken"


def test_a_mixture_resumes_between_logs_on_two_processes(reports: tuple[Path, Path]) -> None:
    """What both processes had added up of each set since the last log is in the checkpoint."""
    (resumed, _), (whole, _) = both(reports, "mixture, resumed"), both(reports, "mixture, whole")
    assert resumed["steps"] == resumed["max_steps"] == whole["steps"]
    for mine, expected in zip(resumed["logs"], whole["logs"], strict=True):
        assert mine == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("scenario", "rows", "epochs"), [("budget", 61, 2), ("budget of few rows", 7, 3)])
def test_a_budget_is_kept_by_every_process(scenario: str, rows: int, epochs: int, reports: tuple[Path, Path]) -> None:
    ranks = both(reports, scenario)
    assert ranks[0]["weights"] == ranks[1]["weights"]
    assert ranks[0]["steps"] == ranks[0]["max_steps"] == len(ranks[0]["trained"]) == len(ranks[1]["trained"])
    assert max(ranks[0]["areas"] + ranks[1]["areas"]) <= 90
    seen = list(chain(*ranks[0]["trained"], *ranks[1]["trained"]))
    assert set(seen) == set(range(rows))
    # Besides stand-ins, of which an epoch has one at most, every row comes once in every epoch.
    assert rows * epochs <= len(seen) <= rows * epochs + epochs


def test_batches_are_taken_in_turn(reports: tuple[Path, Path]) -> None:
    order = list(range(60, -1, -1))
    batches = [order[start : start + 5] for start in range(0, 61, 5)]  # thirteen of them
    first, second = both(reports, "batch sampler")
    assert first["trained"] == batches[0::2] * 2
    assert second["trained"] == [*batches[1::2], batches[12][:1]] * 2, "the last is a stand-in, which counts nothing"
    assert first["weights"] == second["weights"]
    assert alone(reports, "batch sampler")["trained"] == batches * 2


@pytest.mark.parametrize("scenario", ["dealt out", "loader"])
def test_rows_that_are_dealt_out_already_are_left_alone(scenario: str, reports: tuple[Path, Path]) -> None:
    first, second = both(reports, scenario)
    assert first["steps"] == second["steps"] == 16
    for part in (slice(0, 8), slice(8, 16)):
        seen = sorted(chain(*first["trained"][part], *second["trained"][part]))
        assert set(seen) == set(range(61))
        assert len(seen) == 62
    if scenario == "loader":
        assert first["trained"][:8] != first["trained"][8:], "its sampler is told the epoch"


@pytest.mark.parametrize(
    ("scenario", "text"),
    [
        ("whole loader", "train_dataset is a DataLoader, and there are 2 processes"),
        ("for three", "sampler= divides rows among 3 processes"),
        ("uneven", "batches in an epoch; the mean over all processes is 6"),
    ],
)
def test_what_several_processes_cannot_share_is_refused(scenario: str, text: str, reports: tuple[Path, Path]) -> None:
    for rank in both(reports, scenario):
        assert text in rank["error"]
