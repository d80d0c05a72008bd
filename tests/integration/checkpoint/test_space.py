"""The directory of a run: that it cannot be written to, or has no room, is known before the first step."""

from __future__ import annotations

from pathlib import Path

import pytest

from ostinato.checkpoint.space import (
    estimate_state_factor,
    forecast_size,
)
from tests.support.encoder import ROWS, Encoder


@pytest.mark.parametrize("optim", ["adamw_torch", "sgd"])
def test_a_real_run_takes_what_was_forecast(tmp_path: Path, optim: str):
    from ostinato import Trainer, TrainingArguments

    trainer = Trainer(
        model=Encoder(),
        args=TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=2,
            save_steps=2,
            per_device_train_batch_size=4,
            optim=optim,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=ROWS,
    )
    trainer.train()
    written = (tmp_path / "checkpoint-2").rglob("*")
    forecast = forecast_size(Encoder(), estimate_state_factor(trainer.optimizer))
    assert forecast == pytest.approx(sum(path.stat().st_size for path in written if path.is_file()), rel=0.1)
