"""A run in one leg and in two: what a killed and resumed run has to repeat bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ostinato import Trainer, TrainingArguments, set_seed
from tests.support.apis import QUIET

TIMES = ("runtime", "per_second", "flos")


class Net(nn.Module):
    """Two layers with dropout, and a loss."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8, dtype=dtype)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(8, 1, dtype=dtype)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.head(self.dropout(torch.tanh(self.body(x.to(self.body.weight.dtype))))).squeeze(-1).float()
        return {"logits": logits} if labels is None else {"loss": ((logits - labels) ** 2).mean(), "logits": logits}


def rows(count: int = 24) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(7)
    return [{"x": torch.randn(4, generator=draw), "labels": torch.tensor(float(n % 3))} for n in range(count)]


def make_trainer(
    out: Path, callbacks: Sequence[Any] = (), *, model: nn.Module | None = None, **options: Any
) -> Trainer:
    """A trainer of six steps in two epochs, with everything due at every step."""
    settings: dict[str, Any] = {
        **QUIET,
        "per_device_train_batch_size": 8,
        "num_train_epochs": 2,
        "learning_rate": 0.05,
        "logging_steps": 1,
        "save_steps": 1,
        **options,
    }
    set_seed(3)
    args = TrainingArguments(str(out), **settings)
    return Trainer(model or Net(), args, train_dataset=rows(), eval_dataset=rows(8), callbacks=list(callbacks))


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def logs_of(trainer: Trainer) -> list[dict[str, Any]]:
    history = copy.deepcopy(trainer.state.log_history)
    return [{name: value for name, value in entry.items() if not name.endswith(TIMES)} for entry in history]


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    for (name, here), there in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(here, there), name


def assert_resumes(make: Callable[[Path], Trainer], tmp_path: Path, at: Sequence[int] = (1, 3, 4)) -> Trainer:
    """The run as a whole, and again from each of its checkpoints: the same weights and the same logs."""
    whole = make(tmp_path / "whole")
    whole.train()
    for step in at:
        resumed = make(tmp_path / f"from-{step}")
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert_same_weights(whole.model, resumed.model)
        assert logs_of(whole) == logs_of(resumed), f"resumed at {step}"
    return whole
