"""An exponential moving average of the weights, which is evaluated in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import CheckpointError, ConfigError
from ..core.state import TensorState, TrainerControl, TrainerState
from .events import QuietCallback, SwapsWeights

_SMALL = (torch.float16, torch.bfloat16)


class EMACallback(QuietCallback, SwapsWeights, TensorState):
    """Average the weights over the steps; evaluations, the best model and, in the end, the model have the average.

    Training is not affected: its weights are restored, bit for bit, after every evaluation, and they are what a
    checkpoint has in `model.safetensors`. The averages are stored beside them, so a resumed run continues exactly.

    Args:
        decay: The share of the average that is kept at every step. Early on it is smaller, `(1 + n) / (10 + n)` after
            `n` steps, so that the weights from the beginning of training soon have no influence.
        warm_up: False keeps `decay` from the first step on.
        start: The number of steps after which averaging begins.
        evaluate: Whether evaluations, predictions and the best model use the average.
        load_at_end: Whether the model has the average once training has ended (with `load_best_model_at_end`, the
            average that was best).

    >>> Trainer(..., callbacks=[EMACallback(decay=0.999)])  # doctest: +SKIP
    """

    def __init__(
        self,
        decay: float = 0.999,
        *,
        warm_up: bool = True,
        start: int = 0,
        evaluate: bool = True,
        load_at_end: bool = True,
    ) -> None:
        if not isinstance(decay, Real) or not 0 <= decay < 1:
            raise ConfigError(
                what=f"EMACallback(decay={decay!r}) is not an average",
                why="decay is the share of the average that stays at every step",
                fix="choose it between 0 and 1, for example 0.999",
            )
        self.decay, self.warm_up, self.start = decay, warm_up, start
        self.evaluate, self.load_at_end = evaluate, load_at_end
        self.updates = 0
        self.averages: dict[str, Tensor] = {}
        self._saved: Mapping[str, Any] | None = None  # of the checkpoint that is resumed from
        self._pairs: tuple[list[Tensor], list[Tensor]] = ([], [])  # averages, and their parameters
        self._small: list[tuple[Tensor, Tensor]] = []  # the same, for parameters that are averaged in float32
        self._is_lent = False

    # ---- averaging

    def on_train_begin(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        parameters = _list_trained(model, optimizer)
        saved, self._saved = self._saved, None
        if saved is None:
            self.updates = 0
            self.averages = {name: _copy(parameter) for name, parameter in parameters.items()}
        else:
            self.updates, self.averages = saved["updates"], _match_averages(saved["averages"], parameters)
        self._pairs, self._small = ([], []), []
        for name, parameter in parameters.items():
            if parameter.dtype in _SMALL:
                self._small.append((self.averages[name], parameter))
            else:
                self._pairs[0].append(self.averages[name])
                self._pairs[1].append(parameter)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        keep = 0.0
        if state.global_step > self.start:
            self.updates += 1
            keep = min(self.decay, (1 + self.updates) / (10 + self.updates)) if self.warm_up else self.decay
        with torch.no_grad():
            averages, parameters = self._pairs
            if averages:
                torch._foreach_lerp_(averages, parameters, 1 - keep)
            for average, parameter in self._small:
                average.lerp_(parameter.float(), 1 - keep)

    # ---- the average in the model

    @contextmanager
    def swap_weights(self, model: nn.Module) -> Iterator[None]:
        if not self.evaluate or self._is_lent or not self.averages:
            yield
            return
        with self.averaged(model):
            yield

    @contextmanager
    def averaged(self, model: nn.Module) -> Iterator[None]:
        """Give the model the average inside the block; restore the very same weights as before afterwards.

        Args:
            model: The model that is trained.

        Returns:
            A context manager.

        >>> with ema.averaged(trainer.model):  # doctest: +SKIP
        ...     trainer.save_model("average")
        """
        originals: list[tuple[Tensor, Tensor]] = []
        self._is_lent = True
        try:
            for name, parameter in model.named_parameters():
                if name in self.averages:
                    originals.append((parameter, _exchange(parameter, self.averages[name])))
            yield
        finally:
            for parameter, data in originals:
                _put_back(parameter, data)
            self._is_lent = False

    def on_train_end(
        self, args: Any, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        has_best = args.load_best_model_at_end and state.best_model_checkpoint is not None
        if self.load_at_end and not has_best:
            _load_averages(model, self.averages)
        if self.load_at_end or has_best:
            self._forget()  # the model has its final weights: none are exchanged any more

    def load_best_weights(self, model: nn.Module, saved: Mapping[str, Any]) -> None:
        """Load the average of the best checkpoint into the model, if it was evaluated there.

        Args:
            model: The model.
            saved: What `tensor_state` returned for the best checkpoint.
        """
        if self.evaluate:
            _load_averages(model, saved["averages"])

    def _forget(self) -> None:
        self.averages, self._pairs, self._small = {}, ([], []), []

    # ---- checkpoints

    def tensor_state(self) -> dict[str, Any]:
        return {"updates": self.updates, "averages": self.averages} if self.averages else {}

    def load_tensor_state(self, state: Mapping[str, Any]) -> None:
        self._saved = state


def _exchange(parameter: Tensor, value: Tensor) -> Tensor:
    """Give a parameter other numbers; return its own."""
    if type(parameter.data) is Tensor:
        own, parameter.data = parameter.data, value.to(parameter.dtype)
        return own
    own = parameter.data.clone()  # a sharded model computes with the memory that it has, whatever `data` is
    with torch.no_grad():
        parameter.copy_(value)
    return own


def _put_back(parameter: Tensor, own: Tensor) -> None:
    if type(parameter.data) is Tensor:
        parameter.data = own
    else:
        with torch.no_grad():
            parameter.copy_(own)


def _list_trained(model: nn.Module, optimizer: Any) -> dict[str, nn.Parameter]:
    """Return what the optimizer changes, now or once it is unfrozen: other weights equal their average."""
    moved = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if id(parameter) in moved and parameter.is_floating_point()
    }


def _copy(parameter: Tensor) -> Tensor:
    """Copy a parameter, in float32 if it has half precision, in which small steps towards a mean are lost."""
    return parameter.detach().to(torch.float32 if parameter.dtype in _SMALL else parameter.dtype, copy=True)


def _match_averages(saved: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    shapes = {name: tuple(average.shape) for name, average in saved.items()}
    present = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
    if shapes != present:
        differing = sorted(name for name in shapes.keys() | present.keys() if shapes.get(name) != present.get(name))
        raise CheckpointError(
            what="the averages in the checkpoint are of other parameters than those that are trained",
            why=f"{', '.join(differing[:5])}{', …' if len(differing) > 5 else ''}",
            fix="resume with the same model, or leave EMACallback out",
        )
    return {name: saved[name].to(parameter.device, copy=True) for name, parameter in parameters.items()}


def _load_averages(model: nn.Module, averages: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in averages:
                parameter.copy_(averages[name])
