"""Listeners receive every notice, at any verbosity, except inside `silence_notices`."""

from __future__ import annotations

import pytest

import ostinato
from ostinato.core.notices import forget_notices, listen_to_notices, note, note_once, silence_notices, warn


@pytest.fixture
def received() -> list[tuple[str, str]]:
    return []


def test_a_listener_receives_each_notice_once(received: list[tuple[str, str]]) -> None:
    forget_notices()
    with listen_to_notices(lambda kind, text: received.append((kind, text))):
        note("one")
        warn("two")
        note_once("three")
        note_once("three")
    note("after")
    assert received == [("notice", "one"), ("warning", "two"), ("notice", "three")]


def test_verbosity_does_not_affect_listeners(
    received: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    before = ostinato.logging.get_verbosity()
    ostinato.logging.set_verbosity_error()
    try:
        with listen_to_notices(lambda kind, text: received.append((kind, text))):
            warn("two")
    finally:
        ostinato.logging.set_verbosity(before)
    assert received == [("warning", "two")] and capsys.readouterr().err == ""


def test_silenced_notices_do_not_reach_listeners(received: list[tuple[str, str]]) -> None:
    with listen_to_notices(lambda kind, text: received.append((kind, text))):
        with silence_notices(), silence_notices():
            warn("two")
        note("three")
    assert received == [("notice", "three")]
