"""A schedule-free optimizer for tests that must not depend on a package."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Optimizer


class ScheduleFreeSGD(Optimizer):
    """Schedule-free gradient descent (Defazio et al., 2024): `y` is trained, `x` is the average of `z`.

    The model holds `y` after `train`, `x` after `eval`; y = (1 - momentum) z + momentum x.
    """

    def __init__(self, params: Any, lr: float = 0.1, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "train_mode": False, "k": 0})

    def train(self) -> None:
        self._switch(True)

    def eval(self) -> None:
        self._switch(False)

    @torch.no_grad()
    def _switch(self, training: bool) -> None:
        for group in self.param_groups:
            if group["train_mode"] != training:
                share = 1 - group["momentum"] if training else 1 - 1 / group["momentum"]
                for parameter in group["params"]:
                    if "z" in self.state[parameter]:
                        parameter.lerp_(self.state[parameter]["z"], share)
                group["train_mode"] = training

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            assert group["train_mode"], "a step in evaluation mode"
            group["k"] += 1
            for parameter in (one for one in group["params"] if one.grad is not None):
                z = self.state[parameter].setdefault("z", parameter.clone())
                x = parameter.lerp(z, 1 - 1 / group["momentum"])
                z.sub_(parameter.grad, alpha=group["lr"])
                x.lerp_(z, 1 / group["k"])
                parameter.copy_(x.lerp(z, 1 - group["momentum"]))
