"""The progress bar on real pseudo terminals, plain lines in pipes, and transformers' dict lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import ostinato


class Slow:
    """Rows that make the training wait."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((4,), float(index)), "labels": torch.tensor(float(index))}


def trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, resume: bool = False, **arguments: Any
) -> list[str]:
    """The lines that a training writes into a pipe."""

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            return {"loss": ((self.layer(x).squeeze(-1) - labels) ** 2).mean()}

    torch.manual_seed(0)
    args = ostinato.TrainingArguments(
        str(tmp_path / "out"), use_cpu=True, per_device_train_batch_size=4, disable_tqdm=False,
        **{"max_steps": 12, "save_strategy": "no", **arguments},
    )  # fmt: skip
    trainer = ostinato.Trainer(Line(), args, train_dataset=Slow(), eval_dataset=Slow())
    trainer.train(resume_from_checkpoint=resume)
    return capsys.readouterr().out.splitlines()


def test_a_run_prints_its_header_and_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = trained(tmp_path, capsys, eval_strategy="steps", eval_steps=6, metric_for_best_model="loss")
    assert lines[0] == "training Line on cpu in float32: 5 parameters, 24 rows, 12 steps of 4 rows"
    assert re.fullmatch(r"step 1 epoch 0\.17 loss \d+(\.\d+)?", lines[1])
    assert re.fullmatch(
        rf"done in 0:\d\d: best loss \d+(\.\d+)? at step 12; results in {re.escape(str(tmp_path / 'out'))}", lines[-1]
    )
    assert len(lines) == 6  # two evaluations, and the summary


def test_the_first_loss_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = trained(tmp_path, capsys, logging_steps=1, max_steps=3)[1:4]
    assert [line.split()[1] for line in first] == ["1", "2", "3"]
    by_hand = trained(tmp_path, capsys, max_steps=3)[1]
    assert by_hand.split()[-1] == first[0].split()[5], "what is shown is what would have been logged"


def test_the_first_loss_of_a_resumed_run_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings: dict[str, Any] = {"lr_scheduler_type": "constant", "save_strategy": "steps", "save_steps": 6}
    trained(tmp_path, capsys, **settings, logging_steps=4, max_steps=6)
    resumed = trained(tmp_path, capsys, **settings, logging_steps=4, max_steps=8, resume=True)
    never_stopped = trained(tmp_path / "2", capsys, **settings, logging_steps=1, max_steps=8)
    assert resumed[1].split()[:5] == ["step", "7", "epoch", "1.17", "loss"]
    assert resumed[1].split()[5] == never_stopped[7].split()[5]
