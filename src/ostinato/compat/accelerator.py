"""`trainer.accelerator`: the names that subclasses and clients use, as a view on the trainer's strategy."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import NotSupportedError
from ..core.tree import tree_map


class AcceleratorView:
    """Answers to accelerate's names; it owns nothing."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    @property
    def device(self) -> torch.device:
        return self._trainer.strategy.device

    @property
    def num_processes(self) -> int:
        return self._trainer.args.world_size

    @property
    def process_index(self) -> int:
        return self._trainer.args.process_index

    @property
    def local_process_index(self) -> int:
        return self._trainer.args.local_process_index

    @property
    def is_main_process(self) -> bool:
        return self._trainer.is_world_process_zero()

    @property
    def is_local_main_process(self) -> bool:
        return self._trainer.is_local_process_zero()

    @property
    def sync_gradients(self) -> bool:
        run = getattr(self._trainer, "_run", None)
        return run is None or run.is_last_micro_batch

    @property
    def mixed_precision(self) -> str:
        return self._trainer.args.mixed_precision

    @property
    def scaler(self) -> Any:
        return getattr(self._trainer.precision, "scaler", None)

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        self._trainer.precision.backward(loss)

    def clip_grad_norm_(self, parameters: Iterable[nn.Parameter], max_norm: float, norm_type: int = 2) -> Tensor:
        if norm_type != 2:
            return nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=norm_type)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        return self._trainer.strategy.clip(gradients, max_norm)

    def unwrap_model(self, model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        inner = getattr(model, "module", None)
        return inner if isinstance(inner, nn.Module) and type(model).__name__ == "DistributedDataParallel" else model

    def gather(self, tensor: Any) -> Any:
        return self._trainer.strategy.gather(tensor)

    gather_for_metrics = gather

    def pad_across_processes(self, tensor: Any, dim: int = 0, pad_index: int = 0, pad_first: bool = False) -> Any:
        """As it is: `gather` pads by itself."""
        return tensor

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        if reduction == "none":
            return tensor
        combine = self._trainer.strategy.mean if reduction == "mean" else self._trainer.strategy.sum
        return tree_map(lambda leaf: combine(leaf) * scale if isinstance(leaf, Tensor) else leaf, tensor)

    def wait_for_everyone(self) -> None:
        self._trainer.strategy.barrier()

    def main_process_first(self) -> AbstractContextManager[Any]:
        return self._trainer.args.main_process_first(local=False)

    def prepare(self, *parts: Any, **kwargs: Any) -> Any:
        """As they are: models and optimizers are placed by the trainer, loaders of its own are sharded already."""
        return parts[0] if len(parts) == 1 else parts

    def prepare_model(self, model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        return model.to(self.device)

    def autocast(self, *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        return self._trainer.precision.autocast()

    def print(self, *args: Any, **kwargs: Any) -> None:
        if self.is_local_main_process:
            print(*args, **kwargs)  # noqa: T201

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _NoSuchName(
            what=f"trainer.accelerator has no {name!r}",
            why="it is a view on Ostinato's own parts and offers the names in common use, not all of accelerate's",
            fix="use trainer.strategy (device, place, gather, sum, mean, barrier) or trainer.precision instead",
        )


class _NoSuchName(NotSupportedError, AttributeError):
    """So that `getattr(accelerator, name, default)` keeps working."""
