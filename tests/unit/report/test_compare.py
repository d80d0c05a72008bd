"""Runs compared: a planted difference is found at its step, and settings that differ are named."""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from ostinato.report.compare import (
    compare_runs,
    find_differences,
    find_differing_settings,
    find_first_difference,
    summarize_comparison,
)
from ostinato.report.journal_reader import RunRecord, read_run
from tests.support.journals import Journal, loss_at, whole_run


def written(directory: Path, losses: dict[int, Any], **fields: Any) -> RunRecord:
    journal = Journal(directory).start(**fields)
    for step, loss in losses.items():
        journal.log(step, loss=loss, learning_rate=0.1)
    return read_run(directory)


def next_float(value: float) -> float:
    return struct.unpack("<d", struct.pack("<q", struct.unpack("<q", struct.pack("<d", value))[0] + 1))[0]


@pytest.mark.parametrize("step", [1, 37, 100])
def test_a_planted_difference_of_one_bit_is_found_at_its_step(tmp_path: Path, step: int) -> None:
    losses: dict[int, Any] = {one: loss_at(one) for one in range(1, 101)}
    changed = {**losses, step: next_float(losses[step])}
    difference = find_first_difference(written(tmp_path / "a", losses), written(tmp_path / "b", changed))
    assert (difference.step, difference.name, difference.before) == (step, "loss", step - 1 or None)
    assert (difference.one, difference.other) == (losses[step], changed[step])


def test_equal_runs(tmp_path: Path) -> None:
    losses = {1: 1.0, 2: "NaN", 3: 0.5}
    difference = find_first_difference(written(tmp_path / "a", losses), written(tmp_path / "b", losses))
    assert difference.step is None and difference.compared == 3 and "equal bit for bit" in str(difference)


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), ("NaN", 1.0), ("Infinity", "-Infinity")])
def test_values_that_differ(tmp_path: Path, one: Any, other: Any) -> None:
    assert find_first_difference(written(tmp_path / "a", {1: one}), written(tmp_path / "b", {1: other})).step == 1


def test_only_steps_that_both_logged_are_compared(tmp_path: Path) -> None:
    runs = []
    for name, norms in (("a", {step: float(step) for step in range(1, 21)}), ("b", {5: 5.0, 10: 10.0, 15: 15.5})):
        journal = Journal(tmp_path / name).start()
        for step, norm in norms.items():
            journal.log(step, grad_norm=norm)
        runs.append(read_run(tmp_path / name))
    every, fifth = runs
    assert find_first_difference(every, fifth).step == find_first_difference(fifth, every).step == 15
    none = find_first_difference(written(tmp_path / "c", {1: 1.0}), written(tmp_path / "d", {2: 2.0}))
    assert not none.compared and str(none) == "have no common log that can be compared"


def test_losses_that_are_means_of_different_steps_are_not_compared(tmp_path: Path) -> None:
    every = written(tmp_path / "a", {step: float(step) for step in range(1, 11)})
    fifth = written(tmp_path / "b", {5: 3.0, 10: 8.0})
    difference = find_first_difference(every, fifth)  # of the rate
    assert difference.step is None and difference.compared == 2
    assert str(difference).endswith("; 2 losses are means of different steps, and were not compared")


def test_a_run_that_branches_off_is_compared_from_its_first_log_on(tmp_path: Path) -> None:
    whole = written(tmp_path / "a", {7: 1.0, 14: 2.0, 21: 3.0})
    fork = written(tmp_path / "b", {14: 2.0, 21: 3.5}, step=10, resumed_from={"step": 10})
    difference = find_first_difference(whole, fork)
    assert (difference.step, difference.before) == (21, 14)


def test_an_evaluation_shows_a_difference_that_no_log_of_training_shows(tmp_path: Path) -> None:
    for name, loss in (("a", 0.5), ("b", 0.25)):
        Journal(tmp_path / name).start().log(3, eval_loss=loss)
    difference = find_first_difference(read_run(tmp_path / "a"), read_run(tmp_path / "b"))
    assert (difference.step, difference.name) == (3, "eval_loss")


def test_a_rate_that_differs_earlier_than_the_loss_is_named(tmp_path: Path) -> None:
    one = Journal(tmp_path / "a").start()
    other = Journal(tmp_path / "b").start()
    for step in range(1, 6):
        one.log(step, loss=1.0, learning_rate=0.1)
        other.log(step, loss=1.0 if step < 4 else 2.0, learning_rate=0.1 if step < 3 else 0.2)
    difference = find_first_difference(read_run(tmp_path / "a"), read_run(tmp_path / "b"))
    assert (difference.step, difference.name) == (3, "learning_rate")


def test_a_resumed_run_is_compared_by_what_counts(tmp_path: Path) -> None:
    whole = written(tmp_path / "a", {step: float(step) for step in range(1, 11)})
    journal = Journal(tmp_path / "b").start()
    for step in range(1, 8):
        journal.log(step, loss=float(step) if step <= 4 else math.pi, learning_rate=0.1)
    journal.start(step=4)
    for step in range(5, 11):
        journal.log(step, loss=float(step), learning_rate=0.1)
    assert find_first_difference(whole, read_run(tmp_path / "b")).step is None


def test_settings_that_differ(tmp_path: Path) -> None:
    same = {"seed": 42, "output_dir": "a"}
    a = written(tmp_path / "a", {1: 1.0}, arguments={**same, "learning_rate": 0.1}, code={"commit": "1" * 40})
    b = written(
        tmp_path / "b", {1: 1.0}, arguments={**same, "learning_rate": 0.2, "output_dir": "b", "new": None},
        environment={"python": "3.12.0", "device": "cpu", "packages": {"torch": "2.14.0"}}, code={"commit": "2" * 40},
    )  # fmt: skip
    found = find_differing_settings([a, b])
    assert found == {
        "learning_rate": [0.1, 0.2],
        "new": ["–", None],
        "commit": ["1" * 40, "2" * 40],
        "python": ["3.11.7", "3.12.0"],
        "torch version": ["2.13.0", "2.14.0"],
    }


def test_the_comparison_page(tmp_path: Path) -> None:
    whole_run(tmp_path / "a", name="one")
    whole_run(tmp_path / "b", name="two", arguments={"learning_rate": 0.5})
    text = compare_runs([tmp_path / "a", tmp_path / "b", tmp_path / "b"])
    for expected in (
        "3 runs compared",
        "equal bit for bit",
        "What differs",
        "learning_rate",
        "Eval accuracy",
        "Results",
    ):
        assert expected in text
    assert text.count('class="swatch"') >= 3


def test_runs_of_the_same_name_are_named_by_their_directories(tmp_path: Path) -> None:
    places = [tmp_path / "baseline" / "out", tmp_path / "changed" / "out"]
    runs = [written(place, {1: 1.0}, name="digits") for place in places]
    told = list(summarize_comparison(runs, find_differences(runs)))
    assert told[0].startswith("baseline/out and changed/out are equal")
    twice = [runs[0], runs[0]]
    assert next(summarize_comparison(twice, find_differences(twice))).startswith(
        f"out {runs[0].run_id} and out {runs[0].run_id}"
    )


def test_shared_curves_come_first_and_omitted_ones_are_counted(tmp_path: Path) -> None:
    for place, name in enumerate("ab"):
        journal = Journal(tmp_path / name).start()
        journal.log(1, loss=1.0, **{f"eval_{name}_{number}": 1.0 for number in range(20)}, eval_shared=place)
    text = compare_runs([tmp_path / "a", tmp_path / "b"])
    assert text.count("<figure") == 24 and "19 more in the journals" in text
    assert text.index("<h3>Eval shared") < text.index("<h3>Eval a 0")


@pytest.mark.parametrize(
    ("devices", "shown"),
    [((0, 0), ["process"]), ((1, 1), ["device, peak"]), ((0, 1), ["device, peak", "process"])],
)
def test_memory_is_compared_where_the_model_is(tmp_path: Path, devices: tuple[int, int], shown: list[str]) -> None:
    for name, device in zip("ab", devices, strict=True):
        journal = Journal(tmp_path / name).start()
        for step in (10, 20):
            memory = {"rss": 2_000_000_000, **({"device_peak": 7_000_000_000 + step} if device else {})}
            journal.write("log", step=step, epoch=0.1, logs={"loss": 1.0}, seconds=journal.seconds, memory=memory)
    text = compare_runs([tmp_path / "a", tmp_path / "b"])
    assert [one for one in ("device, peak", "process") if f"Memory in GB: {one}" in text] == shown
    assert "memory/" not in text
    gigabytes = {"process": "2", "device, peak": "7"}
    for one in shown:
        assert re.search(rf"Memory in GB: {one}\. [ab]: {gigabytes[one]} at step 10,", text)
