"""One process, one device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .clipping import clip

_NOTHING_TO_EXCHANGE = nullcontext()


@dataclass
class SingleDevice:
    """Nobody to talk to."""

    device: torch.device

    def place(self, model: nn.Module) -> nn.Module:
        return model

    def accumulate(self, model: nn.Module, *, sync: bool) -> AbstractContextManager[Any]:
        return _NOTHING_TO_EXCHANGE

    def clip(self, gradients: list[Tensor], max_norm: float) -> Tensor:
        return clip(gradients, max_norm)

    def sum(self, value: Tensor) -> Tensor:
        return value

    def mean(self, value: Tensor) -> Tensor:
        return value

    def gather(self, tree: Any, *, pad: float | None = None) -> Any:
        return tree

    def sampler_shard(self) -> tuple[int, int]:
        return 0, 1

    def barrier(self) -> None:
        pass
