"""Adafactor: adaptive steps, their second moment kept as row and column means (Shazeer & Stern, arXiv 1804.04235)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ..core.divided_tensors import divide_like
from ..core.errors import ConfigError


class Adafactor(Optimizer):
    """An optimizer as adaptive as Adam, at a fraction of its memory: an n x m matrix needs n + m numbers of state.

    State is kept in float32 for parameters of fewer bits.

    Args:
        params: the parameters, or groups of them.
        lr: the rate. It must stay None with `relative_step`, where the rate follows from the step number.
        eps: what is added to squared gradients, and the least scale of a parameter for `scale_parameter`.
        clip_threshold: the root mean square above which an update is scaled down.
        decay_rate: the exponent of the step number in the decay of the second moment.
        beta1: the decay of a first moment, which takes memory of its own; None for no first moment.
        weight_decay: the weight decay, which is multiplied by the rate.
        scale_parameter: multiply the rate by the root mean square of the parameter.
        relative_step: compute the rate from the step number (the default).
        warmup_init: start with small rates; needs `relative_step`.

    Raises:
        ConfigError: there are two sources for the rate, or none; or `warmup_init` is set without `relative_step`.

    >>> weight = torch.nn.Parameter(torch.ones(3, 2))
    >>> optimizer = Adafactor([weight], lr=1e-3, relative_step=False, scale_parameter=False)
    >>> weight.sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        eps: tuple[float, float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        decay_rate: float = -0.8,
        beta1: float | None = None,
        weight_decay: float = 0.0,
        scale_parameter: bool = True,
        relative_step: bool = True,
        warmup_init: bool = False,
    ) -> None:
        _check_rate(lr, relative_step=relative_step, warmup_init=warmup_init)
        defaults = {
            "lr": lr,
            "eps": eps,
            "clip_threshold": clip_threshold,
            "decay_rate": decay_rate,
            "beta1": beta1,
            "weight_decay": weight_decay,
            "scale_parameter": scale_parameter,
            "relative_step": relative_step,
            "warmup_init": warmup_init,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient, and return what `closure` returns.

        Args:
            closure: A function that computes the loss again, with gradients.

        Returns:
            What `closure` returned; None without one.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state as it was saved; torch alone would round it to the parameters' type.

        Args:
            state_dict: What `state_dict` returned.
        """
        super().load_state_dict(state_dict)
        slots = [slot for group in state_dict["param_groups"] for slot in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for slot, parameter in zip(slots, parameters, strict=True):
            for name, value in state_dict["state"].get(slot, {}).items():
                if isinstance(value, Tensor):
                    self.state[parameter][name] = value.to(device=parameter.device, copy=True)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Take one step for one parameter, computing in float32 if it is stored in fewer bits."""
        assert parameter.grad is not None
        if parameter.grad.is_sparse:
            raise RuntimeError("Adafactor does not support sparse gradients.")
        weight = _widen(parameter)
        gradient = _widen(parameter.grad)
        state = self.state[parameter]
        if not state:
            state.update(_build_state(gradient, first_moment=group["beta1"] is not None))

        state["step"] += 1
        state["RMS"] = _compute_rms(weight)
        # Averages over an axis of length 1 may be whole on every process, where the weight is divided.
        update = divide_like(_normalise(gradient, group, state), weight)
        update.div_((_compute_rms(update) / group["clip_threshold"]).clamp_(min=1.0))
        update.mul_(_compute_rate(group, state))
        if group["beta1"] is not None:
            update = state["exp_avg"].mul_(group["beta1"]).add_(update, alpha=1 - group["beta1"])
        if group["weight_decay"] != 0:
            # `alpha` fuses product and sum (a tensor product rounds twice), at the price of a wait for the GPU.
            weight.add_(weight, alpha=float(_compute_rate(group, state, times=-group["weight_decay"])))
        weight.sub_(update)
        if weight is not parameter:
            parameter.copy_(weight)


class AdafactorSchedule(LambdaLR):
    """A schedule that changes nothing: it reports the rate that Adafactor computes for itself.

    It reports `initial_lr` before the first step. The rate of a group is that of its first parameter with a gradient.

    Args:
        optimizer: An `Adafactor` with `relative_step=True`.
        initial_lr: The rate to report before the first step.

    Raises:
        ConfigError: The optimizer is given its rate.

    >>> optimizer = Adafactor([torch.nn.Parameter(torch.ones(3, 2))])
    >>> AdafactorSchedule(optimizer, initial_lr=0.5).get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, initial_lr: float = 0.0) -> None:
        for group in optimizer.param_groups:
            if not group.get("relative_step", False):
                raise ConfigError(
                    what=f"AdafactorSchedule cannot be used with this {type(optimizer).__name__}",
                    why="it reports the rate an optimizer derives from the step number; this one is given its rate",
                    fix="use get_constant_schedule(optimizer), or Adafactor(..., lr=None, relative_step=True)",
                )
            group["initial_lr"] = initial_lr
        super().__init__(optimizer, _return_full_rate)

    def get_lr(self) -> list[float]:
        """Return the rate of every group's last step, or `initial_lr` before the first."""
        return [
            _find_reported_rate(self.optimizer, group, float(base))
            for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True)
        ]


def get_adafactor_schedule(optimizer: Optimizer, initial_lr: float = 0.0) -> AdafactorSchedule:
    """Return a schedule that reports the rate Adafactor computes for itself; see `AdafactorSchedule`.

    Args:
        optimizer: An `Adafactor` with `relative_step=True`.
        initial_lr: The rate to report before the first step.

    Returns:
        The schedule.

    >>> optimizer = Adafactor([torch.nn.Parameter(torch.ones(3, 2))])
    >>> get_adafactor_schedule(optimizer).get_last_lr()
    [0.0]
    """
    return AdafactorSchedule(optimizer, initial_lr)


def _check_rate(lr: float | None, *, relative_step: bool, warmup_init: bool) -> None:
    """Raise if there are two sources for the rate, or none."""
    if relative_step and lr is not None:
        raise ConfigError(
            what="Cannot combine manual `lr` and `relative_step=True` options",
            why=f"lr={lr} is a fixed rate, and relative_step=True derives the rate from the step number",
            fix=f"set lr=None, or keep lr={lr} and set relative_step=False",
        )
    if warmup_init and not relative_step:
        raise ConfigError(
            what="`warmup_init=True` requires `relative_step=True`",
            why="it is the derived rate that warms up; with a fixed rate the schedule does that",
            fix="set warmup_init=False and use a schedule with warmup, or set relative_step=True and lr=None",
        )
    if lr is None and not relative_step:
        raise ConfigError(
            what="Adafactor has no learning rate",
            why="lr=None, and relative_step=False means that it is not derived from the step number",
            fix="set lr=1e-3, or relative_step=True",
        )


def _build_state(gradient: Tensor, *, first_moment: bool) -> dict[str, Any]:
    """Return moments at zero; the second one is factored for matrices and stacks of matrices."""
    state: dict[str, Any] = {"step": 0}
    if first_moment:
        state["exp_avg"] = torch.zeros_like(gradient)
    if gradient.dim() >= 2:
        state["exp_avg_sq_row"] = torch.zeros_like(gradient[..., 0])
        state["exp_avg_sq_col"] = torch.zeros_like(gradient[..., 0, :])
    else:
        state["exp_avg_sq"] = torch.zeros_like(gradient)
    return state


def _compute_rate(group: dict[str, Any], state: dict[str, Any], *, times: float = 1.0) -> float | Tensor:
    """Return the rate of this step, times a factor; a tensor, to avoid a wait, if it depends on the parameter."""
    rate = group["lr"]
    if group["relative_step"]:
        fastest = 1e-6 * state["step"] if group["warmup_init"] else 1e-2
        rate = min(fastest, 1.0 / math.sqrt(state["step"]))
    if not group["scale_parameter"]:
        return rate * times
    scale, smallest = state["RMS"], group["eps"][1]
    # Not a clamp: the floor is multiplied out in Python's precision, the scale in the tensor's.
    return torch.where(scale > smallest, scale * rate * times, smallest * rate * times)


def _normalise(gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> Tensor:
    """Advance the second moment and divide the gradient by its root."""
    decay = 1.0 - math.pow(state["step"], group["decay_rate"])
    squares = gradient**2 + group["eps"][0]
    if "exp_avg_sq" in state:
        moment = state["exp_avg_sq"].mul_(decay).add_(squares, alpha=1.0 - decay)
        return moment.rsqrt().mul_(gradient)
    rows = state["exp_avg_sq_row"].mul_(decay).add_(squares.mean(dim=-1), alpha=1.0 - decay)
    columns = state["exp_avg_sq_col"].mul_(decay).add_(squares.mean(dim=-2), alpha=1.0 - decay)
    row_factor = (rows / rows.mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1)
    return torch.mul(row_factor, columns.unsqueeze(-2).rsqrt()).mul_(gradient)


def _compute_rms(values: Tensor) -> Tensor:
    return values.norm(2) / math.sqrt(values.numel())


def _widen(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _return_full_rate(_step: int) -> float:
    return 1.0


def _find_reported_rate(optimizer: Optimizer, group: dict[str, Any], before: float) -> float:
    """Return the rate of the group's first parameter that was updated, or `before` if none was."""
    states = (optimizer.state[parameter] for parameter in group["params"] if parameter in optimizer.state)
    return next((float(_compute_rate(group, state)) for state in states if state), before)
