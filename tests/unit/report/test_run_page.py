"""The page of a run: all of it is there, none of it comes from elsewhere, and nothing in a journal can act."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from ostinato.report import html, run_page
from ostinato.report.charts import Mark, Series, render_chart
from ostinato.report.compare import compare_runs
from ostinato.report.downsample import Curve
from ostinato.report.journal_reader import read_run
from ostinato.report.run_page import render_run, write_report
from tests.support.html_pages import Parsed, check_self_contained
from tests.support.journals import Journal, whole_run

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'></title></style>&amp;"


def test_the_page_shows_every_section(tmp_path: Path) -> None:
    whole_run(tmp_path).write("warning", text="the gradient norm was large")
    text = render_run(read_run(tmp_path))
    check_self_contained(text)
    shown = " ".join(Parsed(text).text)
    for expected in [
        "digits", "finished", "Net, 1,234 parameters", "400 train / 64 eval rows", "Step 100", "Epoch 2.00",
        "Train loss", "Eval loss", "Eval accuracy", "best 0.9 at step 100", "Learning rate", "Gradient norm",
        "Rows per second", "Memory in GB", "checkpoint-100", "1.3 MB", "Waiting for data", "400 of 400 rows",
        "Columns left out", "comment", "the gradient norm was large", "learning_rate", "0.001", "given",
        "python train.py --name 'a b'", "4be1c0d0a9f0c3f1c1f3f3f3f3f3f3f3f3f3f3f3", "3.11.7", "torch 2.13.0",
        "dataloader_num_workers=4",
    ]:  # fmt: skip
        assert expected in shown, expected
    assert shown.index("learning_rate") < shown.index("max_grad_norm"), "those that were set come first"


def test_the_best_is_marked_also_if_it_was_evaluated_after_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path).start()
    for step in (10, 20):
        journal.write("save", step=step, path=f"checkpoint-{step}", bytes=1, seconds=0.1, best=False)
        journal.evaluation(step, eval_loss=step)
    journal.write("best", step=10, metric="eval_loss", value=10.0)
    journal.write("end", step=20, best_checkpoint="checkpoint-10")
    assert re.findall(r"(checkpoint-\d+) <span[^>]*>best<", render_run(read_run(tmp_path))) == ["checkpoint-10"]


def test_a_journal_cannot_act_on_the_page(tmp_path: Path) -> None:
    journal = whole_run(
        tmp_path,
        until=20,
        name=EVIL,
        arguments={EVIL: EVIL, "lr_scheduler_type": EVIL, "save_total_limit": EVIL},
        origins={EVIL: "given " + EVIL},
        plan={"model": EVIL, "metric": EVIL, "columns": [EVIL], "columns_left_out": [EVIL], "steps": EVIL},
        environment={EVIL: EVIL, "device": EVIL, "packages": {EVIL: EVIL}},
        command={"words": [EVIL], "directory": EVIL},
        code={"commit": EVIL, "branch": EVIL},
        forked_from={"checkpoint": EVIL, "run_id": EVIL},
    )
    journal.log(21, **{EVIL: 1.0, "loss": 1.0})
    journal.evaluation(21, **{"eval_" + EVIL: 1.0})
    journal.write("save", step=21, path=EVIL, bytes=1, seconds=0.1, best=True)
    journal.write("best", step=21, metric=EVIL, value=1.0)
    journal.write("warning", text=EVIL)
    journal.write("error", step=21, type=EVIL, text=EVIL, traceback=EVIL, seconds={EVIL: 1.0})
    text = render_run(read_run(tmp_path))
    check_self_contained(text)
    assert "alert(1)" in " ".join(Parsed(text).text)
    assert "<script>alert" not in text and "<img" not in text
    check_self_contained(compare_runs([tmp_path, tmp_path]))


def test_the_script_is_the_one_its_policy_allows(tmp_path: Path) -> None:
    import base64
    import hashlib

    whole_run(tmp_path, until=20)
    text = render_run(read_run(tmp_path))
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in text


def test_the_same_journal_gives_the_same_page(tmp_path: Path) -> None:
    whole_run(tmp_path)
    assert write_report(tmp_path).read_bytes() == write_report(tmp_path, tmp_path / "b.html").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.html", "events.jsonl", "report.html"]


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        ("error", {"type": "ValueError", "text": "bad rows", "traceback": "in row 7"}, "ValueError: bad rows"),
        ("stopped", {"signal": "SIGTERM"}, "Stopped by SIGTERM after step 20. The last checkpoint is checkpoint-20."),
        ("notice", {"text": ""}, "The journal records no end"),
    ],
)
def test_how_a_run_ended(tmp_path: Path, kind: str, fields: dict[str, Any], told: str) -> None:
    journal = whole_run(tmp_path, until=20)
    lines = journal.path.read_text().splitlines(keepends=True)
    journal.path.write_text("".join(lines[:-1]))
    journal.write(kind, step=20, **fields)
    assert told in " ".join(Parsed(render_run(read_run(tmp_path))).text)


@pytest.mark.parametrize(
    ("command", "shown", "not_shown"),
    [
        ({"words": ["python", "t.py", "it's"]}, """python t.py 'it'"'"'s'""", "Started"),
        (
            {"words": ["python", "-u", "t.py"], "launcher": {"name": "torchrun", "nodes": 1, "per_node": 2}},
            "torchrun --nproc-per-node 2 t.py",
            "Started",
        ),
        (
            {"words": ["python", "-u", "-m", "pkg"], "launcher": {"name": "torchrun", "nodes": 3, "per_node": 8}},
            "--nproc-per-node 8 -m pkg Started by torchrun on 3 nodes",
            " -u ",
        ),
        ({"words": ["python", "-m", "ipykernel_launcher"], "notebook": True}, "run its cells again", "ipykernel"),
        ({"words": ["python", "-"]}, "the program itself is not recorded", "launcher"),
        ({"words": ["python", "t.py"], "launcher": "x"}, "python t.py", "torch.distributed"),
    ],
)
def test_the_command_to_repeat_a_run(tmp_path: Path, command: dict[str, Any], shown: str, not_shown: str) -> None:
    Journal(tmp_path).start(command=command, code={}, processes=1)
    text = " ".join(Parsed(run_page._render_command(read_run(tmp_path))).text)
    assert shown in text and not_shown not in text


def test_the_step_a_run_continued_from(tmp_path: Path) -> None:
    Journal(tmp_path).start(step=10, resumed_from={"step": 10, "checkpoint": "checkpoint-10"})
    assert "Continued from step 10 of another run" in " ".join(
        Parsed(run_page._render_command(read_run(tmp_path))).text
    )


def test_a_run_that_logged_nothing(tmp_path: Path) -> None:
    Journal(tmp_path).start(plan={}, arguments={}, origins={}, environment={}, command={}, code={})
    text = render_run(read_run(tmp_path))
    check_self_contained(text)
    assert "Nothing was logged" in text


def test_a_long_run_makes_a_page_of_bounded_size(tmp_path: Path) -> None:
    journal = Journal(tmp_path).start()
    lines = []
    for step in range(1, 20_001):
        norm, spent = 1.5 if step % 20 == 0 else 0.5, step * 0.01 + step // 50 * 0.5
        lines.append(
            f'{{"v":1,"run":"{journal.run}","event":"log","step":{step},"logs":{{"loss":{step * 7919 % 1000 / 999},'
            f'"grad_norm":{norm},"learning_rate":0.1}},"seconds":{{"computing":{spent}}}}}\n'
        )
    journal.raw("".join(lines))
    text = render_run(read_run(tmp_path))
    assert len(text) < 250_000
    assert "and clipped, in" not in text, "how many were above is not known of a curve that was thinned"
    assert f">{8 * 20_000 / 400:,.0f}<small>rows/s</small></dd><dd>mean, while training<" in text


# ---- charts ---------------------------------------------------------------------------------------------------------


def lines_of(drawn: str) -> list[str]:
    return re.findall(r'<path class="(?:ln|thin|raw)"[^>]* d="([^"]*)"', drawn)


def test_a_line_goes_where_its_values_are() -> None:
    drawn = render_chart("Loss", [Series("loss", Curve((0, 50, 100), (0.0, 5.0, 10.0)), 1)], until=100)
    points = re.findall(r"[ML]([\d.]+) ([\d.]+)", lines_of(drawn)[0])
    places = [(float(x), float(y)) for x, y in points]
    assert [x for x, _ in places] == [0.0, 500.0, 1000.0]
    heights = [1000 - y for _, y in places]
    assert heights[0] == 0 and heights[1] == pytest.approx(heights[2] / 2, abs=0.2) and heights[2] > 900


def test_a_line_is_broken_where_there_is_no_number_and_the_place_is_marked() -> None:
    drawn = render_chart("Loss", [Series("loss", Curve((1, 2, 3, 4), (1.0, math.nan, 2.0, math.inf)), 1)])
    assert lines_of(drawn)[0].count("M") == 2 and 'class="bad"' in drawn
    assert "NaN" in drawn and "inf" not in lines_of(drawn)[0]


@pytest.mark.parametrize("values", [(0.0,), (5.0, 5.0), (-1.0, -1.0), (1e-300, 1e300), (0.0, 5e-324), (math.nan,),
                                    (-1e308, 1e308), (1e16, 1e16 + 2)])  # fmt: skip
def test_axes_of_extreme_ranges(values: tuple[float, ...]) -> None:
    drawn = render_chart(
        "x", [Series("x", Curve(tuple(range(len(values))), values), 1, dots=True, fill=True, smooth=True)]
    )
    assert not re.search("nan|inf", " ".join(re.findall(r' d="([^"]*)"', drawn)))
    assert not re.search(r"(?:left|top):(?:nan|inf|-?\d{5})", drawn)
    assert drawn.endswith("</figure>")


def test_a_spike_far_above_the_rest_makes_the_axis_logarithmic() -> None:
    values = [1.0 + step % 7 / 10 for step in range(100)]
    values[50] = 5_000.0
    assert "logarithmic" in render_chart("Loss", [Series("loss", Curve(tuple(range(100)), tuple(values)), 1)])
    values[50] = 3.0
    assert "logarithmic" not in render_chart("Loss", [Series("loss", Curve(tuple(range(100)), tuple(values)), 1)])


def test_a_chart_has_a_text_description() -> None:
    drawn = render_chart("Loss", [Series("train", Curve((1, 2, 3), (3.0, 1.0, 2.0)), 1)])
    assert "train: 3 at step 1, 2 at step 3, lowest 1 at step 2, highest 3 at step 1" in drawn


def test_the_loss_of_training_has_the_first_colour_also_if_an_evaluation_was_logged_before(tmp_path: Path) -> None:
    journal = Journal(tmp_path).start().log(1, eval_loss=1.0)
    journal.evaluation(1, eval_loss=1.0)
    journal.log(2, loss=2.0)
    assert re.findall(r"--c:var\(--r(\d)\)\">(\w+)<", run_page._render_large_charts(read_run(tmp_path))[0]) == [
        ("1", "train"),
        ("2", "eval"),
    ]


def test_one_spike_does_not_lift_the_smooth_line_for_long() -> None:
    values = [1.0 + step % 7 / 10 for step in range(200)]
    values[50] = 5_000.0
    drawn = render_chart("Loss", [Series("loss", Curve(tuple(range(200)), tuple(values)), 1, smooth=True)])
    smooth = re.findall(r"[ML][\d.]+ ([\d.]+)", lines_of(drawn)[1])
    assert float(smooth[75]) == pytest.approx(float(smooth[45]), abs=60)  # of a thousand, from the top


def test_marks_that_are_close_stand_below_one_another() -> None:
    marks = [Mark(10, "a run with a name differs"), Mark(10, "another differs"), Mark(90, "resumed")]
    drawn = render_chart("Loss", [Series("loss", Curve((0, 100), (1.0, 2.0)), 1)], marks=marks)
    places = re.findall(r'<span class="ml[^"]*" style="left:([\d.]+)%;top:(\d+)px', drawn)
    assert places == [("10.00", "2"), ("10.00", "16"), ("90.00", "2")]


def test_many_curves_are_folded_and_none_is_left_out_silently(tmp_path: Path) -> None:
    journal = Journal(tmp_path).start()
    journal.log(1, **{f"metric_{place}": 1.0 for place in range(100)})
    text = render_run(read_run(tmp_path))
    check_self_contained(text)
    assert text.count("<figure") == 90
    assert "75 more curves; another" in text and text.index("Metric 3<") < text.index("75 more curves")


def test_a_short_run_is_not_advised(tmp_path: Path) -> None:
    for name, waited in (("short", 0.5), ("long", 5.0)):
        Journal(tmp_path / name).start().write("end", step=1, seconds={"computing": 0.5, "data": waited})
        assert ("dataloader_num_workers=4" in render_run(read_run(tmp_path / name))) is (name == "long")


# ---- at the end of training -----------------------------------------------------------------------------------------


def test_a_page_is_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.html").write_text("before")
    monkeypatch.setattr(html.os, "replace", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        html.write_page("new", tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "before"
