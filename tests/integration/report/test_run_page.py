"""The page of a run: all of it is there, none of it comes from elsewhere, and nothing in a journal can act."""

from __future__ import annotations

from typing import Any

import pytest

from ostinato.report import run_page
from tests.support import tiny
from tests.support.apis import Api
from tests.support.html_pages import check_self_contained


def test_training_writes_the_report(ours: Api) -> None:
    ours.fit(tiny.regression(), tiny.regression_rows(), max_steps=6)
    text = (ours.output_dir / "report.html").read_text(encoding="utf-8")
    check_self_contained(text)
    assert "Step 6" in text and "finished" in text


def test_write_report_false_writes_none(ours: Api) -> None:
    ours.fit(tiny.regression(), tiny.regression_rows(), max_steps=2, write_report=False)
    assert [path.name for path in ours.output_dir.iterdir()] == ["events.jsonl"]


def test_a_failed_page_is_a_warning(ours: Api, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(run_page, "render_run", lambda *_: 1 / 0)
    ours.fit(tiny.regression(), tiny.regression_rows(), max_steps=2)
    assert "the report of the run could not be written: division by zero" in capsys.readouterr().err
    assert not (ours.output_dir / "report.html").exists()
