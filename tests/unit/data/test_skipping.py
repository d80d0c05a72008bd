"""How far the reading of what is dropped is: a bar where there is one, a line from time to time where not."""

from __future__ import annotations

from typing import Any

import pytest

from ostinato.data import skip_progress
from ostinato.data.skip_progress import SkipProgress


class Time:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(skip_progress, "time", time)
    return time


def drop(clock: Time, rows: int, seconds: float, show: Any = None) -> None:
    with SkipProgress(rows, "rows", show) as dropped:
        for _ in range(100):
            clock.now += seconds / 100
            dropped.advance(rows // 100)


def test_less_than_a_second_is_not_worth_a_word(clock: Time, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []
    drop(clock, 1000, 0.9, lambda *told: seen.append(told) or True)
    assert seen == [] and capsys.readouterr().err == ""


def test_a_bar_is_told_often_and_once_that_it_is_over(clock: Time, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []
    drop(clock, 1000, 60, lambda *told: seen.append(told) or True)
    assert seen[0] == (20, 1000, "rows") and seen[-2:] == [(1000, 1000, "rows"), (None, 1000, "rows")]
    assert len(seen) == 100 and capsys.readouterr().err == ""


@pytest.mark.parametrize("show", [None, lambda *told: False])
def test_without_a_bar_there_is_a_line_every_ten_seconds(
    show: Any, clock: Time, capsys: pytest.CaptureFixture[str]
) -> None:
    drop(clock, 4000, 40.5, show)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "ostinato: 1000 of 4000 rows skipped, 99 per second; about 30 s remaining"
    assert len(said) == 4


def test_a_bar_is_taken_away_when_reading_fails(clock: Time) -> None:
    seen: list[Any] = []
    with pytest.raises(OSError), SkipProgress(100, "rows", lambda *told: seen.append(told) or True) as dropped:
        clock.now += 2
        dropped.advance(1)
        raise OSError
    assert seen == [(1, 100, "rows"), (None, 100, "rows")]
