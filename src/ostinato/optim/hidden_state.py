"""State that optimizers of other libraries leave out of their state dict, or that no file can hold there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..core.tree import tree_map

State = dict[str, Any]

_KEY = "hidden_state"
_MARK = "_shows_hidden_state"


@dataclass(frozen=True)
class _Hidden:
    """How the hidden state of one class is read and restored."""

    read: Callable[[Any, State], None]  # puts it into a state dict
    restore: Callable[[Any, Any], None]


def show_hidden_state(optimizer: Any) -> None:
    """Make the state dict of an optimizer hold all of its state, as numbers, tensors and containers of them."""
    hidden = _HIDDEN.get(type(optimizer).__name__)
    if hidden is None or getattr(optimizer, _MARK, False):
        return
    setattr(optimizer, _MARK, True)
    loaded: list[Any] = []  # from the hook before a state is loaded to the one after it

    def before_load(optimizer: Any, state: State) -> State:
        loaded[:] = [state.get(_KEY)]
        return {name: value for name, value in state.items() if name != _KEY}

    def after_load(optimizer: Any) -> None:
        found = loaded.pop()
        if found is not None:
            hidden.restore(optimizer, found)

    optimizer.register_state_dict_post_hook(hidden.read)
    optimizer.register_load_state_dict_pre_hook(before_load)
    optimizer.register_load_state_dict_post_hook(after_load)


# ---- GrokAdamW: in its parameter groups, by parameter


def _read_group_states(optimizer: Any, state: State) -> None:
    groups = [{name: value for name, value in group.items() if name != "state"} for group in state["param_groups"]]
    state["param_groups"] = groups
    state[_KEY] = [
        {number: group["state"][one] for number, one in enumerate(group["params"]) if one in group.get("state", {})}
        for group in optimizer.param_groups
    ]


def _restore_group_states(optimizer: Any, found: list[dict[int, Any]]) -> None:
    for group, states in zip(optimizer.param_groups, found, strict=True):
        parameters = group["params"]
        group["state"] = {parameters[number]: _copy_to(parameters[number], state) for number, state in states.items()}


# ---- AdaLomo: in attributes, by name of the parameter

_ADALOMO = ("step_num", "exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col")


def _read_attributes(optimizer: Any, state: State) -> None:
    state[_KEY] = {name: getattr(optimizer, name) for name in _ADALOMO}


def _restore_attributes(optimizer: Any, found: dict[str, Any]) -> None:
    first = optimizer.param_groups[0]["params"][0]
    for name in _ADALOMO:
        setattr(optimizer, name, _copy_to(first, found[name]))


def _copy_to(parameter: torch.Tensor, state: Any) -> Any:
    """Return a copy of a state on the device of a parameter."""

    def copy(leaf: Any) -> Any:
        return leaf.to(parameter.device, copy=True) if isinstance(leaf, torch.Tensor) else leaf

    return tree_map(copy, state)


_HIDDEN = {
    "GrokAdamW": _Hidden(_read_group_states, _restore_group_states),
    "AdaLomo": _Hidden(_read_attributes, _restore_attributes),
}
