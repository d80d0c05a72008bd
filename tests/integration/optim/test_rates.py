"""Rates by layer and by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from ostinato import RatesCallback, optimizer_with_rates
from tests.support.resumed_runs import assert_resumes, make_trainer


def with_rates(out: Path, **options):
    trainer = make_trainer(out, [RatesCallback()], weight_decay=0.1, **options)
    chosen = optimizer_with_rates(trainer.model, trainer.args, {"head": 0.2})
    trainer.optimizer_cls_and_kwargs = chosen
    return trainer


def test_one_rate_for_each_group_is_logged(tmp_path: Path) -> None:
    """Rates of the step at hand, by the shape of the schedule."""
    trainer = with_rates(tmp_path, logging_steps=2)
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "lr/head" in entry]
    assert [entry["step"] for entry in entries] == [2, 4, 6]
    assert [entry["lr/head"] for entry in entries] == pytest.approx([0.2 * left / 6 for left in (5, 3, 1)])
    assert [entry["lr/rest"] for entry in entries] == [entry["lr/head"] / 4 for entry in entries]
    assert [entry["learning_rate"] for entry in entries] == [entry["lr/rest"] for entry in entries]


def test_groups_are_resumed(tmp_path: Path) -> None:
    assert_resumes(lambda out: with_rates(out, logging_steps=2), tmp_path, at=(1, 4))


def test_epochs_are_logged_once(tmp_path: Path) -> None:
    trainer = with_rates(tmp_path, logging_strategy="epoch")
    trainer.train()
    found = [entry["lr/head"] for entry in trainer.state.log_history if "lr/head" in entry]
    assert found == pytest.approx([0.2 * 4 / 6, 0.2 * 1 / 6])
