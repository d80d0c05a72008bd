"""An argument that only declares its rule for a resumed run is compared with the checkpoint's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ostinato import Trainer, TrainingArguments
from ostinato.arguments.argument import argument
from ostinato.arguments.resume_rules import change_numbers
from tests.support import tiny


@dataclass(repr=False)
class NoiseArguments(TrainingArguments):
    noise: float = argument(0.0, help="Strength of the noise added to inputs.", on_resume=change_numbers)


def test_a_resumed_run_names_the_change(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    def train(checkpoint: Path | None = None, **given: Any) -> None:
        args = NoiseArguments(str(tmp_path), use_cpu=True, max_steps=2, save_steps=1, disable_tqdm=True, **given)
        trainer = Trainer(tiny.regression(), args, train_dataset=tiny.regression_rows(8))
        trainer.train(resume_from_checkpoint=checkpoint)

    train()
    capsys.readouterr()
    train(tmp_path / "checkpoint-1", noise=0.5)
    assert "noise  0.0 → 0.5  now 0.5: other numbers from here on" in capsys.readouterr().err
