"""Training in one process, on one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.protocols import Exchange
from .clipping import clip

_NOTHING_TO_EXCHANGE = nullcontext()


@dataclass(frozen=True)
class Known:
    """Numbers of one process alone."""

    numbers: list[list[float]]

    def get(self) -> list[list[float]]:
        return self.numbers


@dataclass
class SingleDevice:
    """Train in one process: collectives return their input."""

    device: torch.device
    rank: int = 0
    size: int = 1
    processes: int = 1
    process_index: int = 0
    is_sharded: bool = False
    has_unused: bool = False

    def place(self, model: nn.Module, *, training: bool = True) -> nn.Module:
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

    def exchange(self, numbers: Sequence[float]) -> Exchange:
        return Known([list(numbers)])

    def finish_backward(self, model: nn.Module) -> nn.Module:
        return model

    def search_unused(self, model: nn.Module) -> nn.Module:
        return model

    def any(self, flag: bool) -> bool:
        return flag

    def gather_objects(self, value: Any) -> list[Any]:
        return [value]

    def gather_from_all(self, value: Any) -> list[Any]:
        return [value]

    def open_background_gather(self) -> Callable[[Any], list[Any]]:
        return self.gather_from_all

    def broadcast_object(self, value: Any) -> Any:
        return value

    def model_state(self, model: nn.Module) -> None:
        return None

    def load_model_state(self, model: nn.Module, state: Mapping[str, Any]) -> Any:
        return model.load_state_dict(state, strict=False)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: Any, state: dict[str, Any]) -> None:
        optimizer.load_state_dict(state)

    def choose_optimizer_options(self, kind: type, options: dict[str, Any], model: nn.Module) -> dict[str, Any]:
        return options

    def barrier(self) -> None:
        pass

    def watch(self, find_step: Callable[[], int], timeout_seconds: float) -> AbstractContextManager[Any]:
        return nullcontext()
