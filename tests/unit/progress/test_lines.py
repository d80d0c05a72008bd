"""Logs as lines of columns, evaluations as small tables, and all evaluations of a run as one."""

from __future__ import annotations

from typing import Any

import pytest

from ostinato.progress import table
from ostinato.progress.format import Columns, Line, LogRecord, cut, measure_width, wrap_line
from ostinato.progress.plain import escape_unencodable, format_value, to_number, to_single_line


def texts(lines: Any) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def shown(columns: Columns, logs: dict[str, Any], *, step: int = 50, width: int = 100, best: str = "") -> list[str]:
    return texts(columns.format_lines(LogRecord(step, 100, 0.5, logs, best), width))


def evaluated(data: str, loss: float, accuracy: float) -> dict[str, Any]:
    prefix = f"eval_{data}"
    return {f"{prefix}_loss": loss, f"{prefix}_accuracy": accuracy, f"{prefix}_runtime": 1.6, "epoch": 0.5}


# ------------------------------------------------------------------------------------------- lines


def test_several_sets_are_rows_of_one_table() -> None:
    columns, best = Columns(100, is_ascii=False), "eval_clean_accuracy"
    assert shown(columns, evaluated("clean", 0.3, 0.8), best=best) == [
        "step  50  epoch 0.50  eval  loss      accuracy",
        "  clean                     0.3       0.8 best  1.6 s",
    ]
    assert shown(columns, evaluated("noisy", 0.5, 0.6)) == ["  noisy                     0.5       0.6       1.6 s"]
    assert shown(columns, {"loss": 0.25}) == ["step  50  epoch 0.50  loss 0.25"]
    assert shown(columns, evaluated("clean", 0.2, 0.9), step=60, best=best) == [
        "step  60  epoch 0.50  eval  loss      accuracy",
        "  clean                     0.2 ↓     0.9 ↑ best  1.6 s",
    ]
    assert shown(columns, evaluated("noisy", 0.5, 0.5), step=60)[0].split() == ["noisy", "0.5", "0.5", "↓", "1.6", "s"]


def test_sets_with_other_metrics_have_their_own_names_above_them() -> None:
    columns = Columns(100, is_ascii=False)
    shown(columns, evaluated("clean", 0.3, 0.8))
    assert shown(columns, {"eval_words_f1": 0.5, "eval_words_runtime": 1.0}) == [
        "step  50  epoch 0.50  eval  f1",
        "  words                     0.5       1.0 s",
    ]


def test_more_metrics_than_a_line_has_room_for_are_a_table() -> None:
    columns = Columns(100, is_ascii=False)
    logs = {"eval_loss": 0.5, **{f"eval_metric_{n}": n / 8 for n in range(5)}, "eval_runtime": 2.0}
    assert shown(columns, logs, width=60, best="eval_metric_1") == [
        "step  50  epoch 0.50  eval  2.0 s",
        "    loss      0.5          metric_2  0.25",
        "    metric_0  0            metric_3  0.375",
        "    metric_1  0.125 best   metric_4  0.5",
    ]
    assert len(shown(columns, logs, width=140)) == 1
    assert all(len(line) <= 40 for line in shown(columns, logs, width=40))


def test_what_is_long_is_cut_in_a_table() -> None:
    columns = Columns(100, is_ascii=False)
    logs = {"eval_loss": 0.5, f"eval_{'x' * 90}": 1.0, "eval_said": "y" * 90, "eval_runtime": 2.0}
    lines = shown(columns, logs, width=50)
    assert max(map(len, lines)) <= 50
    assert any("xxx.." in line for line in lines)
    assert any("yyy.." in line for line in lines)


@pytest.mark.parametrize(("is_ascii", "marks"), [(True, " +-"), (False, " ↑↓")])
def test_arrows_point_where_a_metric_went(is_ascii: bool, marks: str) -> None:
    columns = Columns(100, is_ascii=is_ascii)
    lines = [shown(columns, {"eval_f1": value})[0] for value in (0.5, 0.6, 0.6, 0.4, float("nan"), 10**400)]
    assert [line[-1] for line in lines] == ["5", marks[1], "6", marks[2], "n", marks[1]]


def test_a_resumed_run_knows_what_was_measured() -> None:
    columns = Columns(100, is_ascii=False)
    columns.load_history([{"loss": 3.0, "step": 1}, {"eval_loss": 0.5, "eval_said": "well", "step": 1}])
    assert shown(columns, {"eval_loss": 0.6}) == ["step  50  epoch 0.50  eval  loss 0.6    ↑"]


def test_layouts_are_limited() -> None:
    columns = Columns(100, is_ascii=False)
    for number in range(500):
        assert shown(columns, {f"n{number}": 1.0}) == [f"step  50  epoch 0.50  n{number} 1"]
    assert len(columns._layouts) <= 50
    assert len(columns._widths) <= 50


def test_names_of_any_type() -> None:
    columns = Columns(100, is_ascii=False)
    assert shown(columns, {7: 1.0, "日本": 2.0, "a\nb\x1b[2J": "\x07bell"}) == [  # pyright: ignore[reportArgumentType]
        "step  50  epoch 0.50  7 1  日本 2  a b\\x1b[2J \\x07bell"
    ]


def test_wide_characters_count_twice_where_a_line_is_broken() -> None:
    line: Line = [("  日本語 ", ""), ("1", ""), ("  日本語 ", ""), ("2", "")]
    assert texts(wrap_line(line, 20)) == ["  日本語 1  日本語 2"]
    assert texts(wrap_line(line, 19)) == ["  日本語 1", "      日本語 2"]
    assert measure_width(cut("日本語日本語", 7)) <= 7


# ------------------------------------------------------------------------------------------ values


def test_a_stream_gets_nothing_that_it_cannot_write_or_should_not() -> None:
    assert escape_unencodable("ü→\udcff", "utf-8") == "ü→\\udcff"
    assert escape_unencodable("ü→", "ascii") == "\\xfc\\u2192"
    assert escape_unencodable("plain", None) == "plain"
    assert to_single_line("tab\there\r\n\u202eback") == "tab here \\u202eback"
    assert format_value("x", 10**5000, 20) == "about 2^16610"
    assert format_value("x", -(10**20), 20) == str(-(10**20))
    assert to_number(-(10**400)) == float("-inf")
    assert to_number("0.5") is None


# ----------------------------------------------------------------------------------------- history


def run_of(count: int, *, data: str = "") -> list[dict[str, Any]]:
    prefix = f"eval_{data}_" if data else "eval_"
    return [
        {f"{prefix}loss": 1 / step, f"{prefix}f1": step % 7 / 10, f"{prefix}runtime": 1.0, "step": step, "epoch": 1.0}
        for step in range(1, count + 1)
    ]


def table_of(log_history: list[dict[str, Any]], metric: str | None = "f1", **options: Any) -> list[str]:
    settings = {"greater_is_better": None, "width": 80, "is_ascii": False, **options}
    return texts(table.build_tables(log_history, metric, **settings))


def test_all_evaluations_are_one_table() -> None:
    log_history = [{"loss": 2.0, "step": 1}, *run_of(3), {"train_loss": 2.0, "train_runtime": 3.0, "step": 3}]
    assert table_of(log_history) == [
        "evaluations",
        "  step  epoch  loss      f1",
        "     1   1.00  1         0.1",
        "     2   1.00  0.5 ↓     0.2 ↑",
        "     3   1.00  0.3333 ↓  0.3 ↑  best",
    ]
    assert table_of(log_history, greater_is_better=False)[2].endswith("best")
    assert table_of(log_history, metric=None)[4].endswith("best")  # the lowest loss
    assert table_of(run_of(1)) == []


def test_a_long_history_is_cut_and_says_so() -> None:
    lines = table_of(run_of(40))
    steps = [line.split()[0] for line in lines[2:]]
    assert steps == ["1", "2", "3", "...", "6", "...", "35", "36", "37", "38", "39", "40"]
    assert [line.split()[1:] for line in lines if "..." in line] == [["2", "more"], ["28", "more"]]
    assert [line.split()[0] for line in lines if line.endswith("best")] == ["6"]


def test_every_set_has_its_table() -> None:
    both = [log for pair in zip(run_of(2, data="a"), run_of(2, data="b"), strict=True) for log in pair]
    lines = table_of(both, metric="eval_b_f1")
    assert [line for line in lines if line.startswith("evaluations")] == ["evaluations of a", "evaluations of b"]
    assert [number for number, line in enumerate(lines) if line.endswith("best")] == [7]


def test_what_there_is_no_room_for_is_named() -> None:
    rows = [{f"eval_{name}": 0.5 for name in ("aaaaaaaa", "bbbbbbbb", "f1", "loss")} | {"step": n} for n in (1, 2)]
    lines = table_of(rows, width=34)
    assert lines[1].split() == ["step", "epoch", "loss", "f1"]
    assert lines[-1] == "  not shown: aaaaaaaa, bbbbbbbb"
    assert max(map(len, lines)) <= 34


def test_missing_values_and_texts_in_a_history() -> None:
    rows = [{"eval_loss": 0.5, "eval_said": "x"}, {"eval_f1": float("nan")}, {"eval_f1": 0.5, "step": 3}]
    assert [line.split() for line in table_of(rows)[1:]] == [
        ["step", "epoch", "loss", "f1"],
        ["0.5"],
        ["3", "0.5", "best"],
    ]
