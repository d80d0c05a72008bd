"""Unit tests build parts, and trainers where a part needs one. What trains is in `tests/integration`."""

from __future__ import annotations

import pytest

import ostinato


@pytest.fixture(autouse=True)
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*args: object, **kwargs: object) -> None:
        raise AssertionError("a unit test trains: move it to tests/integration")

    monkeypatch.setattr(ostinato.Trainer, "train", train)
