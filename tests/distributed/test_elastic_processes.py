"""A run that is stopped and goes on with more processes, or fewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.launcher import launch

WORKER = Path(__file__).with_name("elastic_worker.py")
COUNT, STEPS, STOP = 37, 10, 3
SCENARIOS = (
    "random",
    "by windows",
    "accumulated",
    "budget",
    "batches",
    "mixture",
    "stream",
    "sized stream",
    "stateful stream",
    "stream by windows",
    "stateful stream by windows",
)

Seen = dict[int, list[float]]  # row -> what was read of it


class Runs(NamedTuple):
    """One launch: every scenario, in all processes."""

    out: Path
    processes: int
    said: str

    def ranks(self, scenario: str) -> list[dict[str, Any]]:
        return [json.loads((self.out / scenario / f"rank-{rank}.json").read_text()) for rank in range(self.processes)]


def run(out: Path, processes: int, whole: Path | None = None) -> Runs:
    return Runs(out, processes, launch(WORKER, out, *([whole] if whole else []), processes=processes))


@pytest.fixture(scope="module", params=[1, 2], ids=["one, then two", "two, then one"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Runs, Runs]:
    folder = tmp_path_factory.mktemp("elastic")
    whole = run(folder / "whole", request.param)
    return whole, run(folder / "resumed", 3 - request.param, whole.out)


def steps_of(ranks: list[dict[str, Any]]) -> list[Seen]:
    """What every step was computed from, over all processes; a stand-in is a row that another has."""
    found: dict[int, Seen] = {}
    for number, numbers, contents in (batch for rank in ranks for batch in rank["trained"]):
        for row, x in zip(numbers, contents, strict=True):
            found.setdefault(number, {}).setdefault(row, x)
    return [found[number] for number in sorted(found)]


def test_nothing_but_the_number_of_processes_changes(runs: tuple[Runs, Runs]) -> None:
    whole, resumed = runs
    assert f"{resumed.processes} processes instead of {whole.processes}" in resumed.said
    first, second = steps_of(whole.ranks("random")), steps_of(resumed.ranks("random"))
    assert (len(first), len(second)) == (STEPS, STEPS - STOP)
    assert first[STOP:] == second, "the same rows in every step, with the same noise"
    later = {step: loss for step, loss in whole.ranks("random")[0]["losses"].items() if int(step) > STOP}
    for step, loss in later.items():
        assert resumed.ranks("random")[0]["losses"][step] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_row_is_seen_once_in_every_epoch(scenario: str, runs: tuple[Runs, Runs]) -> None:
    whole, resumed = (steps_of(each.ranks(scenario)) for each in runs)
    order = [row for step in [*whole[:STOP], *resumed] for row in step]
    assert sorted(order[:COUNT]) == list(range(COUNT)) or scenario == "mixture"
    assert sorted(order[COUNT : 2 * COUNT]) == list(range(COUNT)) or scenario == "mixture"
    assert len(order) == 2 * COUNT
    for rank in [*runs[0].ranks(scenario), *runs[1].ranks(scenario)]:
        assert rank["steps"] == len(rank["losses"])
    last = runs[1].ranks(scenario)[0]
    assert last["steps"] == STOP + len(resumed), "the steps that were taken, and those that were left"


def test_rows_of_a_mixture_go_on_where_they_stood(runs: tuple[Runs, Runs]) -> None:
    """In each set the rows of a pass come once, over the end of an epoch too."""
    whole, resumed = (steps_of(each.ranks("mixture")) for each in runs)
    order = [row for step in [*whole[:STOP], *resumed] for row in step]
    for rows in (range(20), range(20, COUNT)):
        own = [row for row in order if row in rows]
        assert sorted(own[: len(rows)]) == list(rows)


@pytest.mark.parametrize("scenario", ["random", "by windows", "accumulated", "budget", "mixture"])
def test_the_rows_of_all_steps_are_known(scenario: str, runs: tuple[Runs, Runs]) -> None:
    whole, resumed = (steps_of(each.ranks(scenario)) for each in runs)
    if scenario != "mixture":  # whose rows have numbers of their own
        for rank in runs[1].ranks(scenario):
            assert [sorted(rows) for rows in rank["samples"]] == [sorted(step) for step in [*whole[:STOP], *resumed]]


def test_noise_is_that_of_the_place_in_the_epoch(runs: tuple[Runs, Runs]) -> None:
    for scenario in ("stream", "sized stream", "stateful stream", "mixture", "by windows"):
        whole, resumed = (steps_of(each.ranks(scenario)) for each in runs)
        assert resumed == whole[STOP:], scenario
