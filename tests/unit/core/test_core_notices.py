"""One plain line, once."""

from __future__ import annotations

import io
import sys

import pytest

from ostinato.core import notices


@pytest.fixture(autouse=True)
def fresh() -> None:
    notices.forget_notices()


def test_notices_go_to_the_present_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", first)
    notices.note("one")
    monkeypatch.setattr(sys, "stderr", second)
    notices.warn("two")
    assert first.getvalue() == "ostinato: one\n"
    assert second.getvalue() == "ostinato: two\n"


def test_note_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        notices.note_once("dropped a column")
    notices.note_once("dropped another")
    captured = capsys.readouterr()
    assert captured.err == "ostinato: dropped a column\nostinato: dropped another\n"
    assert captured.out == ""


def test_key_groups_wordings(capsys: pytest.CaptureFixture[str]) -> None:
    notices.note_once("skipped 3 rows", key="skipped")
    notices.note_once("skipped 4 rows", key="skipped")
    assert capsys.readouterr().err == "ostinato: skipped 3 rows\n"


def test_forgotten_notices_are_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    notices.note_once("again")
    notices.forget_notices()
    notices.note_once("again")
    assert capsys.readouterr().err.count("again") == 2


def test_note_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    notices.note("hello")
    notices.note("hello")
    assert capsys.readouterr().err.count("hello") == 2


def test_only_the_main_process_shows_notices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """RANK is read at the time of speaking; errors are heard from everybody."""
    monkeypatch.setenv("RANK", "1")
    notices.note("note")
    notices.warn("warning")
    assert capsys.readouterr().err == ""
    notices.logger.error("broken")
    assert capsys.readouterr().err == "ostinato: broken\n"
    monkeypatch.setenv("RANK", "0")
    notices.note("note")
    assert capsys.readouterr().err == "ostinato: note\n"
