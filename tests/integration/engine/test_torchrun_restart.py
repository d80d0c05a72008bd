"""A restart by torchrun goes on with the run that it restarts, and with no other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ostinato import Trainer, TrainerCallback, TrainingArguments
from tests.support.tiny import Regression


class Dies(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise RuntimeError("dies")


def start(out: Path, *, dies: int | None = None) -> int:
    """Train for six steps; return the step at which training began."""
    began: list[int] = []

    class Notes(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            began.append(state.global_step)

    torch.manual_seed(0)
    rows = [{"x": torch.randn(4), "labels": torch.randn(())} for _ in range(16)]
    args = TrainingArguments(
        str(out), max_steps=6, save_steps=2, per_device_train_batch_size=2, use_cpu=True, disable_tqdm=True
    )
    callbacks: list[TrainerCallback] = [Notes(), *([] if dies is None else [Dies(dies)])]
    trainer = Trainer(Regression(), args, train_dataset=rows, callbacks=callbacks)
    if dies is None:
        trainer.train()
    else:
        with pytest.raises(RuntimeError, match="dies"):
            trainer.train()
    return began[0]


def test_a_restart_goes_on_without_being_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    assert start(tmp_path, dies=5) == 0
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert start(tmp_path) == 4


def test_a_restart_does_not_take_an_older_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert start(tmp_path) == 0
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    assert start(tmp_path, dies=1) == 0
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert start(tmp_path, dies=3) == 0, "the older run's checkpoint-6 is not this run's"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert start(tmp_path) == 2
