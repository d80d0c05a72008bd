"""Optimizers of parameters that are divided among processes: which can be used, and with which options."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from ..core.errors import NotSupportedError

_AT_ONCE = ("foreach", "fused")  # options to update many parameters in one operation

# Optimizers that fail on divided parameters, or would be wrong: what they need, and what to use.
_REFUSED = {
    "torch.optim.Adafactor": ("it changes the shape of the averages in place", "optim='adafactor'"),
    "torch.optim.LBFGS": ("it joins all parameters into one vector", "optim='adamw_torch'"),
    "torch.optim.SparseAdam": ("it needs sparse gradients", "optim='adamw_torch'"),
}
_REFUSED_PACKAGES = {
    "bitsandbytes": "its kernels read the memory of whole parameters",
    "apex": "its kernels read the memory of whole parameters",
    "galore_torch": "it decomposes whole gradients",
    "apollo_torch": "it projects whole gradients",
    "grokadamw": "it keeps a copy of whole gradients",
    "lomo_optim": "it updates parameters inside the backward pass",
}


def choose_options(kind: type, options: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """Return the options to create an optimizer of divided parameters with.

    Parameters on different meshes cannot be updated in one operation, so each gets its own.

    Raises:
        NotSupportedError: The optimizer cannot be used with divided parameters.
    """
    _check_kind(kind)
    if len(_find_meshes(one for one in model.parameters() if one.requires_grad)) < 2:
        return options
    known = inspect.signature(kind).parameters
    return {**options, **{name: False for name in _AT_ONCE if name in known}}


def _update_singly_if_mixed(group: dict[str, Any]) -> None:
    if len(_find_meshes(group["params"])) > 1:
        group.update({name: False for name in _AT_ONCE if name in group})


def _find_meshes(parameters: Iterable[Any]) -> set[Any]:
    return {one.device_mesh if isinstance(one, DTensor) else None for one in parameters}


def _check_kind(kind: type) -> None:
    package, name = kind.__module__.partition(".")[0], f"torch.optim.{kind.__name__}"
    why, use = None, "optim='adamw_torch', or torch's SGD"
    if kind.__module__.startswith("torch.optim") and name in _REFUSED:
        why, use = _REFUSED[name]
    elif package in _REFUSED_PACKAGES:
        why, name = _REFUSED_PACKAGES[package], f"{kind.__module__}.{kind.__name__}"
    if why is not None:
        raise NotSupportedError(
            what=f"{name} cannot train a model that is divided among processes",
            why=f"{why}, and each process holds a part of every parameter",
            fix=f"use {use}",
        )


def load_state(optimizer: Any, state: dict[str, Any]) -> None:
    """Load a state; how many parameters are updated at once stays as this run needs it."""
    before = [{name: group[name] for name in _AT_ONCE if name in group} for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, kept in zip(optimizer.param_groups, before, strict=True):
        group.update(kept)
        _update_singly_if_mixed(group)


@contextmanager
def keep_parameters(optimizer: Any, model: nn.Module) -> Iterator[None]:
    """Give an optimizer the parameters that replace its own inside the block: dividing a model makes new ones."""
    groups = getattr(optimizer, "param_groups", None)
    names = {} if groups is None else _name_parameters(model)
    yield
    if not names:
        return
    present = dict(model.named_parameters(remove_duplicate=False))
    replaced = {
        old: present[name]
        for old, name in names.items()
        if name in present and present[name] is not old and isinstance(present[name], DTensor)
    }
    for group in optimizer.param_groups if replaced else ():
        group["params"] = [replaced.get(one, one) for one in group["params"]]
        _update_singly_if_mixed(group)
    for old in [old for old in getattr(optimizer, "state", {}) if old in replaced]:
        new, state = replaced[old], optimizer.state.pop(old)
        optimizer.state[new] = {key: _divide_like(value, old, new) for key, value in state.items()}


def _name_parameters(model: nn.Module) -> dict[nn.Parameter, str]:
    return {parameter: name for name, parameter in model.named_parameters()}


@torch.no_grad()
def _divide_like(value: Any, old: Tensor, new: Any) -> Any:
    """Return a state tensor of a whole parameter, divided as the parameter is now."""
    if not isinstance(value, Tensor) or value.shape != old.shape or isinstance(value, DTensor):
        return value
    return distribute_tensor(value, new.device_mesh, new.placements, src_data_rank=None)
