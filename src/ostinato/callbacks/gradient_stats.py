"""Statistics of gradients: updates lost to rounding, parameters without a gradient, and norms by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.divided_tensors import gather_whole, get_local
from ..core.errors import ConfigError
from ..core.logged_numbers import track
from ..core.notices import note
from ..core.state import TrainerControl, TrainerState
from .events import QuietCallback

SAMPLED = 2**14  # elements sampled in all, each parameter by its share


class GradientStatisticsCallback(QuietCallback):
    """Log `updates_lost`, and report parameters that are trained and get no gradient.

    An update is lost where a weight has a gradient and is the same after the step as before: the change was smaller
    than the number format can represent. In float32 it is a thousandth; weights in bfloat16 may lose most of theirs.
    It is counted over a sample of the weights, in steps that were not skipped, and nothing waits for the device before
    a log line is written.

    Args:
        every: Inspect one step in so many.
        by_layer: Also log `grad_norm/<layer>`, after clipping.

    >>> Trainer(..., callbacks=[GradientStatisticsCallback(every=10)])  # doctest: +SKIP
    """

    def __init__(self, every: int = 10, *, by_layer: bool = False) -> None:
        if every < 1:
            raise ConfigError(
                what=f"GradientStatisticsCallback(every={every}) looks at no step",
                why="it looks at one step in so many",
                fix="every=10",
            )
        self.every, self.by_layer = every, by_layer
        self._before: list[tuple[nn.Parameter, Tensor, int]] = []
        self._stepped: list[Tensor | float] = []
        self._hook: Any = None
        self._without: set[str] | None = None  # in all inspected steps
        self._told = False

    def on_train_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        self._without, self._told, self._before = None, False, []
        elements = sum(one.numel() for one in model.parameters() if one.requires_grad)
        self._stride = elements // SAMPLED | 1  # odd: rows of a matrix mostly have an even length

    def on_pre_optimizer_step(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        if state.global_step % self.every:
            return
        named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
        without = {name for name, one in named if one.grad is None}
        self._without = without if self._without is None else self._without & without
        with_gradient = [(name, one) for name, one in named if one.grad is not None and not one.grad.is_sparse]
        if self.by_layer:
            _track_norms(with_gradient)
        # A rate of 0, as at the first step of a warmup, changes nothing, and nothing is lost.
        still = {id(one) for group in optimizer.param_groups if not _has_rate(group) for one in group["params"]}
        self._before = [
            (one, _flatten(one)[:: self._stride].clone(), self._stride)
            for _, one in with_gradient
            if id(one) not in still
        ]
        self._stepped = []
        self._hook = optimizer.register_step_post_hook(TakenStep(self._stepped))

    def on_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._hook is None:
            return
        self._hook.remove()
        before, self._before, self._hook = self._before, [], None
        if not before or not self._stepped:  # a step that was rejected loses nothing
            return
        lost, counted = [], []
        for parameter, was, stride in before:
            assert parameter.grad is not None
            moved = _flatten(parameter.grad)[::stride] != 0  # rows that were not used have no gradient
            counted.append(moved.sum())
            lost.append((moved & (_flatten(parameter)[::stride] == was)).sum())
        device = lost[0].device
        total = torch.stack([one.to(device) for one in counted]).sum()
        share = torch.stack([one.to(device) for one in lost]).sum() / total.clamp(min=1)
        track("updates_lost", share, weight=total * self._stepped[-1])

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._without and not self._told:
            self._told = True
            names = sorted(self._without)
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            note(f"no gradient so far: {', '.join(names[:10])}{more}; the loss does not depend on them")


@dataclass(frozen=True)
class TakenStep:
    """A hook of an optimizer that notes 1 for a step; 0, on the device, for one that a fused optimizer leaves out."""

    stepped: list[Tensor | float]
    reads_found_inf = True

    def __call__(self, optimizer: Any, *_: Any) -> None:
        found = getattr(optimizer, "found_inf", None)
        self.stepped.append(1.0 if found is None else 1.0 - found)


def _has_rate(group: dict[str, Any]) -> bool:
    rate = group.get("lr")
    return isinstance(rate, Tensor) or rate != 0  # reading a tensor would wait for the device


def _flatten(tensor: Tensor) -> Tensor:
    """Return the numbers of a tensor in a row: of one that is divided among processes, those of this process."""
    return get_local(tensor.detach()).reshape(-1)


def _measure_norms(gradients: list[Tensor]) -> list[Tensor]:
    if any(hasattr(one, "full_tensor") for one in gradients):  # they may be divided in several ways
        return [gather_whole(torch.linalg.vector_norm(one)) for one in gradients]
    return list(torch._foreach_norm(gradients)) if gradients else []


def _track_norms(named: list[tuple[str, nn.Parameter]]) -> None:
    norms = _measure_norms([one.grad for _, one in named if one.grad is not None])
    by_layer: dict[str, list[Tensor]] = {}
    for (name, _), norm in zip(named, norms, strict=True):
        by_layer.setdefault(layer_of(name), []).append(norm)
    for layer, parts in by_layer.items():
        track(f"grad_norm/{layer}", torch.linalg.vector_norm(torch.stack([one.to(parts[0].device) for one in parts])))


def layer_of(name: str) -> str:
    """Return the layer of a parameter: up to the first number in its name, else its module.

    >>> layer_of("bert.encoder.layer.3.attention.self.query.weight"), layer_of("bert.embeddings.word.weight")
    ('bert.encoder.layer.3', 'bert.embeddings.word')
    """
    parts = name.split(".")
    number = next((at for at, part in enumerate(parts) if part.isdigit()), None)
    return ".".join(parts[: number + 1] if number is not None else parts[:-1]) or name
