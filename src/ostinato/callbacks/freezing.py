"""Freeze parts of a model until a step or an epoch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from ..core.errors import ConfigError, NotSupportedError
from ..core.notices import note
from ..core.state import TrainerControl, TrainerState
from .events import CleansUp, QuietCallback

_UNTIL = re.compile(r"(?:until )?(?P<unit>step|epoch) (?P<number>\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Until:
    """The end of a freeze: a number of steps or epochs that are done."""

    unit: str
    number: float

    @classmethod
    def of(cls, given: int | str) -> Until:
        """Parse a number of steps, or a text.

        >>> Until.of(100), Until.of("epoch 1")
        (Until(unit='step', number=100), Until(unit='epoch', number=1.0))
        """
        if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
            return cls("step", given)
        found = _UNTIL.fullmatch(given.strip()) if isinstance(given, str) else None
        if found is None:
            raise ConfigError(
                what=f"FreezeCallback does not know when {given!r} is",
                why="parts are frozen until a step or an epoch",
                fix='give a number of steps, "step 100" or "epoch 1"',
            )
        return cls(found["unit"], float(found["number"]))

    def is_over(self, state: TrainerState) -> bool:
        return (state.global_step if self.unit == "step" else state.epoch or 0.0) >= self.number


class FreezeCallback(QuietCallback, CleansUp):
    """Freeze parameters by name, each until a step or an epoch is done, and train them from then on.

    A frozen parameter gets no gradient, so no optimizer changes it: neither by momentum nor by weight decay. What is
    frozen depends on the step alone: a resumed run continues exactly.

    Args:
        until: By the name of a module or parameter, or a pattern (`*`), how many steps it stays frozen, or
            `"epoch 1"`. If several match a parameter, it is trained after the last of them.

    >>> FreezeCallback({"bert.embeddings": 100, "bert.encoder.layer.*": "epoch 1"})  # doctest: +SKIP
    """

    def __init__(self, until: Mapping[str, int | str]) -> None:
        self.until = {pattern: Until.of(given) for pattern, given in until.items()}
        self._frozen: dict[str, list[nn.Parameter]] = {}  # by pattern

    def on_train_begin(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        is_divided = any(hasattr(one, "full_tensor") for one in model.parameters())
        if args.world_size > 1 and not is_divided and args.ddp_find_unused_parameters is not True:
            raise NotSupportedError(
                what="FreezeCallback with several processes needs ddp_find_unused_parameters=True",
                why="every process would wait for the gradients of what is frozen",
                fix="TrainingArguments(ddp_find_unused_parameters=True)",
            )
        self._thaw_all()
        trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for pattern in self.until:
            matching = {name: one for name, one in model.named_parameters() if _is_match(name, pattern)}
            held = [one for one in matching.values() if id(one) in trained and one.requires_grad]
            if not held:
                raise ConfigError(
                    what=f"FreezeCallback has nothing to freeze under {pattern!r}",
                    why="no parameter is called so" if not matching else "the optimizer trains none of them",
                    fix=f"parts of this model are {', '.join(_list_parts(model))}"
                    if not matching
                    else "leave it out, or let them require gradients when the trainer is made",
                )
            self._frozen[pattern] = held
        for pattern in list(self._frozen):
            if self.until[pattern].is_over(state):
                del self._frozen[pattern]
        frozen = {id(parameter) for parameters in self._frozen.values() for parameter in parameters}
        if frozen and not any(one.requires_grad and id(one) not in frozen for one in model.parameters()):
            patterns, self._frozen = list(self._frozen), {}
            raise ConfigError(
                what="FreezeCallback leaves nothing to train",
                why=f"all of it is frozen after step {state.global_step}, by {', '.join(map(repr, patterns))}",
                fix="leave out a part, such as the head",
            )
        for parameters in self._frozen.values():
            for parameter in parameters:
                parameter.requires_grad_(False)
        if self._frozen:
            note(f"frozen: {', '.join(f'{name} until {_format_limit(self.until[name])}' for name in self._frozen)}")

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._frozen:
            self._thaw(state)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._thaw_all()

    def clean_up(self) -> None:
        """Make all parts trainable again: that a failed run has frozen them would not be expected."""
        self._thaw_all()

    def _thaw(self, state: TrainerState) -> None:
        for pattern in [pattern for pattern in self._frozen if self.until[pattern].is_over(state)]:
            thawed = self._frozen.pop(pattern)
            still = {id(parameter) for parameters in self._frozen.values() for parameter in parameters}
            for parameter in thawed:
                parameter.requires_grad_(id(parameter) not in still)
            note(f"step {state.global_step}: {pattern} is trained from here on")

    def _thaw_all(self) -> None:
        for parameters in self._frozen.values():
            for parameter in parameters:
                parameter.requires_grad_(True)
        self._frozen = {}


def _is_match(name: str, pattern: str) -> bool:
    """Return whether a parameter matches a pattern, or is inside of a module that does.

    >>> _is_match("bert.encoder.layer.1.weight", "bert.encoder"), _is_match("bert.encoder2.weight", "bert.encoder")
    (True, False)
    """
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _list_parts(model: nn.Module) -> list[str]:
    """Return names to list in an error: the model's parts or, if it has none, its parameters."""
    names = [name for name, _ in model.named_children()]
    return names or [name for name, _ in model.named_parameters()]


def _format_limit(until: Until) -> str:
    return f"{until.unit} {until.number:g}"
