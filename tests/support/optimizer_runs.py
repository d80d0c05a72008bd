"""A model and rows on which every optimizer does what is particular to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ostinato.core.choices import OptimizerNames


class Classifier(nn.Module):
    """Large enough for states of 4 and 8 bits, which begin at 4,096 numbers, and for a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 64)
        self.attn = nn.Linear(64, 64)
        self.mlp = nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.head(self.norm(self.mlp(torch.relu(self.attn(self.embedding(x).mean(1))))))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def make_rows(count: int = 24) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(5)
    return [
        {"x": torch.randint(0, 80, (6,), generator=draw), "labels": torch.randint(0, 3, (), generator=draw)}
        for _ in range(count)
    ]


def list_options(name: str) -> dict[str, Any]:
    """Return the arguments that an optimizer needs besides its name; a projection changes every three steps."""
    if OptimizerNames(name).is_low_rank:
        return {"optim_target_modules": ["attn", "mlp"], "optim_args": "rank=4,update_proj_gap=3"}
    return {}


def flatten_weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def let_run_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the CPU to packages that ask for a GPU without need."""
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self, *args, **kwargs: self)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *args: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
