"""An optimizer for each parameter, which steps during the backward pass: no two gradients are kept at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer


class LayerwiseOptimizer(Optimizer):
    """Create an optimizer of `cls` for every parameter, and step it as soon as the parameter's gradient is known.

    Groups, states and learning rates are those of one optimizer for all parameters, so that schedules and checkpoints
    treat it as any other.

    Args:
        params: The parameter groups; their further entries are arguments of the optimizers of their parameters.
        cls: The class of the optimizers.
        lr: The learning rate.
        **options: Further arguments of every optimizer.

    >>> from torch.optim import SGD
    >>> weight = nn.Parameter(Tensor([1.0, 1.0]))
    >>> optimizer = LayerwiseOptimizer([{"params": [weight]}], SGD, lr=0.5)
    >>> weight.sum().backward()
    >>> weight.tolist(), weight.grad
    ([0.5, 0.5], None)
    """

    def __init__(
        self, params: Iterable[dict[str, Any]], cls: Callable[..., Optimizer], lr: float, **options: Any
    ) -> None:
        super().__init__(params, {"lr": lr})
        self._optimizers: dict[nn.Parameter, Optimizer] = {}
        for number, group in enumerate(self.param_groups):
            settings = {name: value for name, value in group.items() if name not in ("params", "lr")}
            for parameter in filter(_is_trained, group["params"]):
                self._optimizers[parameter] = cls([{"params": [parameter], **settings}], lr=lr, **options)
                parameter.register_post_accumulate_grad_hook(partial(_step, weakref.ref(self), number))
        self._share_states()

    def fused_backward(self, loss: Tensor, learning_rate: float) -> None:
        """Compute the gradients of `loss`; a parameter changes, at the rate of its group, as soon as its own is known.

        Args:
            loss: The loss.
            learning_rate: Not used, since every group has its rate.
        """
        loss.backward()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all parameters, as one optimizer for all of them would."""
        states = {
            number: state
            for number, parameter in enumerate(self._parameters())
            if parameter in self._optimizers and (state := self._optimizers[parameter].state_dict()["state"].get(0))
        }
        return {**super().state_dict(), "state": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        super().load_state_dict({**state_dict, "state": {}})
        for number, parameter in enumerate(self._parameters()):
            if parameter in self._optimizers:
                optimizer, state = self._optimizers[parameter], state_dict["state"].get(number)
                own = {"state": {} if state is None else {0: state}}
                optimizer.load_state_dict({**optimizer.state_dict(), **own})
        self._share_states()

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _share_states(self) -> None:
        for parameter, optimizer in self._optimizers.items():
            self.state[parameter] = optimizer.state[parameter]


def _step(owner: weakref.ref[LayerwiseOptimizer], group: int, parameter: Tensor) -> None:
    """Step the optimizer of one parameter; do nothing once another optimizer has taken the owner's place."""
    layerwise = owner()
    if layerwise is not None:
        optimizer = layerwise._optimizers[parameter]  # type: ignore[index]
        optimizer.param_groups[0]["lr"] = layerwise.param_groups[group]["lr"]
        optimizer.step()
        optimizer.zero_grad()


def _is_trained(parameter: nn.Parameter) -> bool:
    return parameter.requires_grad
