"""Somebody may listen to what is said: whatever the verbosity, but not to what is said to nobody."""

from __future__ import annotations

import pytest

import ostinato
from ostinato.core.notices import forget_notices, heard_by, note, note_once, silenced, warn
from ostinato.diagnostics.record_call import suppress_notices


@pytest.fixture
def heard() -> list[tuple[str, str]]:
    return []


def test_what_is_said_is_heard_once(heard: list[tuple[str, str]]) -> None:
    forget_notices()
    with heard_by(lambda kind, text: heard.append((kind, text))):
        note("one")
        warn("two")
        note_once("three")
        note_once("three")
    note("after")
    assert heard == [("notice", "one"), ("warning", "two"), ("notice", "three")]


def test_whatever_the_verbosity(heard: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    before = ostinato.logging.get_verbosity()
    ostinato.logging.set_verbosity_error()
    try:
        with heard_by(lambda kind, text: heard.append((kind, text))):
            warn("two")
    finally:
        ostinato.logging.set_verbosity(before)
    assert heard == [("warning", "two")] and capsys.readouterr().err == ""


@pytest.mark.parametrize("quietly", [silenced, suppress_notices])
def test_what_is_said_to_nobody_is_not_heard(heard: list[tuple[str, str]], quietly) -> None:
    with heard_by(lambda kind, text: heard.append((kind, text))):
        with quietly(), quietly():
            warn("two")
        note("three")
    assert heard == [("notice", "three")]
