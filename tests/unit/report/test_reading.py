"""Reading a journal: segments joined, spikes kept, and nothing in a file that nobody vouches for can do harm."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.report.downsample import MAX_POINTS, Curve, GrowingCurve
from ostinato.report.journal_reader import JournalError, read_run
from ostinato.report.run_page import render_run
from tests.support.journals import Journal, loss_at, whole_run


def test_a_whole_run(tmp_path: Path) -> None:
    whole_run(tmp_path)
    run = read_run(tmp_path)
    assert (run.name, run.outcome, run.step, run.epoch) == ("digits", "finished", 100, 2.0)
    assert run.curves["loss"].values == tuple(loss_at(step) for step in range(1, 101))
    assert run.evaluated == {"eval_loss", "eval_accuracy", "eval_runtime"} and run.evaluated_at == (
        20,
        40,
        60,
        80,
        100,
    )
    assert run.best == {"step": 100, "metric": "eval_accuracy", "value": 0.9}
    assert [save.step for save in run.saves] == [20, 40, 60, 80, 100]
    assert [(one.epoch, one.done, one.of) for one in run.coverage] == [(0, 400, 400), (1, 400, 400)]
    assert run.seconds["evaluation"] == pytest.approx(2.5)
    assert run.curves["speed/rows"].values[0] == pytest.approx(8.0)
    assert run.bad_lines == 0 and not run.newer
    assert read_run(tmp_path / "events.jsonl") == run


def test_the_segments_of_a_resumed_run_are_joined(tmp_path: Path) -> None:
    journal = Journal(tmp_path).start()
    for step in range(1, 8):
        journal.log(step, loss=step + 0.5)
    journal.write("best", step=6, metric="eval_loss", value=1.0)
    journal.write("save", step=4, path="checkpoint-4", bytes=1, seconds=0.1, best=False)
    journal.write("save", step=7, path="checkpoint-7", bytes=1, seconds=0.1, best=False)
    journal.seconds = dict.fromkeys(journal.seconds, 0.0)
    journal.start(step=4)
    for step in range(5, 11):
        journal.log(step, loss=float(step))
    journal.end(10)
    run = read_run(tmp_path)
    assert run.curves["loss"] == Curve(tuple(range(1, 11)), (1.5, 2.5, 3.5, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0))
    assert [leg.from_step for leg in run.segments] == [0, 4] and run.seconds["computing"] == pytest.approx(0.8 * 13)
    assert [save.step for save in run.saves] == [4] and run.best == {}


def test_the_last_run_is_the_default(tmp_path: Path) -> None:
    whole_run(tmp_path, until=20, run="a")
    whole_run(tmp_path, until=40, run="b")
    Journal(tmp_path, "a").write("evaluation", step=20, metrics={"eval_loss": 1.0}, training=False)
    assert read_run(tmp_path).run_id == "b" and read_run(tmp_path).other_runs == 1
    assert read_run(tmp_path, "a").step == 20
    with pytest.raises(JournalError, match="has no run c"):
        read_run(tmp_path, "c")


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "3",
        '"text"',
        "{}",
        '{"run": 3, "event": "log"}',
        '{"run": "20260101-120000-abcdef"}',
        '{"run": "20260101-120000-abcdef", "event": ["log"]}',
        "\x00\xff\x00",
        "[" * 100_000,
        '{"a":' * 5_000,
        "9" * 10_000,
    ],
)
def test_lines_that_are_no_events_are_counted_and_left_out(tmp_path: Path, line: str) -> None:
    whole_run(tmp_path, until=20).raw(line + "\n").write("notice", text="after it")
    run = read_run(tmp_path)
    assert run.bad_lines == 1 and run.messages[-1].text == "after it" and run.step == 20


def test_a_half_line_at_the_end(tmp_path: Path) -> None:
    whole_run(tmp_path, until=20).raw('{"v":1,"run":"20260101-120000-abcdef","eve')
    assert read_run(tmp_path).bad_lines == 1


def test_a_line_without_end_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostinato.report.journal_reader._MAX_LINE_BYTES", 10_000)
    whole_run(tmp_path, until=20).raw('{"text":"' + "x" * 100_000 + '"}\n').write("notice", text="after it")
    run = read_run(tmp_path)
    assert run.bad_lines == 1 and run.messages[-1].text == "after it"


def test_what_a_later_version_adds_is_passed_over(tmp_path: Path) -> None:
    journal = whole_run(tmp_path, until=20)
    journal.write("weather", sky="blue").raw(
        json.dumps({"v": 2, "run": journal.run, "event": "log", "step": 21}) + "\n"
    )
    run = read_run(tmp_path)
    assert run.newer and run.step == 21 and run.bad_lines == 0


@pytest.mark.parametrize(
    ("place", "why"), [("nothing", "does not exist"), ("empty", "no events.jsonl"), ("file", "is an event")]
)
def test_where_there_is_no_journal(tmp_path: Path, place: str, why: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("hello\n")
    with pytest.raises(JournalError, match=why) as caught:
        read_run(tmp_path / place)
    assert "fix:" in str(caught.value) and isinstance(caught.value, (ValueError, OSError))


def test_values_that_are_not_numbers(tmp_path: Path) -> None:
    journal = Journal(tmp_path).start()
    for step, value in enumerate([1.0, "NaN", "Infinity", "-Infinity", "five", None, True, [1], 10**400], 1):
        journal.log(step, loss=value)
    found = read_run(tmp_path).curves["loss"]
    assert found.steps == (1, 2, 3, 4)
    assert math.isnan(found.values[1]) and found.values[2:] == (math.inf, -math.inf)
    assert found.find_lowest() == found.find_highest() == (1, 1.0)


# ---- curves of any length -------------------------------------------------------------------------------------------


def test_a_long_curve_is_thinned_and_keeps_its_spikes() -> None:
    curve, source = GrowingCurve(), random.Random(1)
    for step in range(100_000):
        value = 1.0 + source.random()
        curve.add(step, {31_234: 99.0, 50_000: math.nan, 77_777: -5.0}.get(step, value))
        assert len(curve) <= 3 * MAX_POINTS
    done = curve.build_curve()
    assert MAX_POINTS / 2 <= len(done) <= 2 * MAX_POINTS
    assert done.find_highest() == (31_234, 99.0) and done.find_lowest() == (77_777, -5.0)
    assert [step for step, value in zip(done.steps, done.values, strict=True) if math.isnan(value)] == [50_000]
    assert done.steps[0] == 0 and done.steps[-1] == 99_999 and list(done.steps) == sorted(set(done.steps))


def test_a_long_curve_is_equally_dense_all_over() -> None:
    curve, source = GrowingCurve(), random.Random(2)
    for step in range(64_000):
        curve.add(step, source.random())
    steps = curve.build_curve().steps
    tenths = [sum(step // 6_400 == tenth for step in steps) for tenth in range(10)]
    assert max(tenths) < 2 * min(tenths)


def test_a_point_is_replaced_and_forgotten_wherever_it_lies() -> None:
    for length in (10, 999, 1_000, 1_001, 1_002, 5_000):
        curve = GrowingCurve()
        for step in range(length):
            curve.add(step, 0.5)
        curve.add(length - 1, 7.0)
        assert (curve.build_curve().steps[-1], curve.build_curve().last) == (length - 1, 7.0)
        curve.drop_after(3)
        assert curve.build_curve().steps == (0, 1, 2, 3)[: len(curve)] and curve.build_curve().last == 0.5


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=400))
@settings(max_examples=60, deadline=None)
def test_thinning_keeps_the_ends_and_the_extremes(values: list[float]) -> None:
    curve = Curve(tuple(range(len(values))), tuple(values))
    thin = curve.downsample(20)
    assert len(thin) <= max(20, 4) or len(values) <= 20
    assert thin.steps[0] == 0 and thin.steps[-1] == len(values) - 1
    for whole, kept in ((curve.find_lowest(), thin.find_lowest()), (curve.find_highest(), thin.find_highest())):
        assert (whole is None and kept is None) or (whole and kept and whole[1] == kept[1])


def test_names_and_messages_are_limited(tmp_path: Path) -> None:
    journal = Journal(tmp_path).start()
    journal.log(1, **{f"metric_{number}": 1.0 for number in range(2_000)})
    for number in range(500):
        journal.write("warning", text=str(number))
    run = read_run(tmp_path)
    assert len(run.curves) <= 300 and len(run.messages) == 200 and run.num_omitted_messages == 300


# ---- anything at all ------------------------------------------------------------------------------------------------

KINDS = [
    "start",
    "log",
    "evaluation",
    "prediction",
    "save",
    "best",
    "epoch",
    "notice",
    "gap",
    "end",
    "stopped",
    "error",
]
FIELDS = [
    "step",
    "epoch",
    "logs",
    "metrics",
    "seconds",
    "memory",
    "rows",
    "plan",
    "arguments",
    "origins",
    "environment",
    "command",
    "code",
    "path",
    "bytes",
    "text",
    "value",
    "metric",
    "name",
    "time",
    "tokens",
    "resumed_from",
    "v",
    "processes",
    "forked_from",
    "traceback",
    "lines",
    "best",
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FIELDS, "loss", "words"]), inner),
    max_leaves=6,
)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), ANYTHING)), max_size=8))
@settings(max_examples=80, deadline=None)
def test_whatever_is_in_it_a_journal_can_be_read_and_shown(lines: list[tuple[str, dict[str, Any]]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "events.jsonl"
        entries = [{"run": "a", "event": "start"}, *({"run": "a", **fields, "event": kind} for kind, fields in lines)]
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        assert "</html>" in render_run(read_run(path))
