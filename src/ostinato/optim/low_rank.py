"""Parameter groups of optimizers that project gradients to a lower rank: GaLore and APOLLO."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..arguments.settings import OptimizerSettings
from ..core.errors import ConfigError
from ..core.notices import note_once

GALORE = {"rank": 128, "update_proj_gap": 200, "scale": 0.25, "proj_type": "std"}
APOLLO = {
    "rank": 128,
    "proj": "random",
    "scale_type": "channel",
    "update_proj_gap": 200,
    "scale": 1.0,
    "proj_type": "std",
}

_EVERY_LINEAR = ("all-linear", "all_linear")


def split_parameters(
    model: nn.Module, settings: OptimizerSettings, projection: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return two parameter groups: the others, and the weights of `optim_target_modules` with their `projection`.

    Raises:
        ConfigError: No linear layer is named.
    """
    targets = settings.target_modules or []
    projected = list(dict.fromkeys(_find_weights(model, targets)))  # a weight may belong to two modules
    if not projected:
        raise ConfigError(
            what=f"optim_target_modules={targets!r} names no linear layer of the model",
            why=f"its linear layers are {_describe_linear_layers(model)}",
            fix="a text has to match the whole name (a regular expression), an item of a list a part of it",
        )
    chosen = set(map(id, projected))
    others = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    return [{"params": others}, {"params": projected, **projection}]


def is_target(name: str, targets: str | list[str]) -> bool:
    """Return whether a module is named: by a pattern for its whole name, or by an item that is a part of it.

    >>> is_target("layers.0.attn.q", ".*q"), is_target("layers.0.attn.q", "attn")
    (True, False)
    >>> is_target("layers.0.attn.q", ["attn"])
    True
    """
    if isinstance(targets, str):
        return re.fullmatch(targets, name) is not None
    return any(target in name or re.fullmatch(target, name) is not None for target in targets)


def _find_weights(model: nn.Module, targets: str | list[str]) -> list[Tensor]:
    """Return the weights of the linear layers that are named, in the order of the modules."""
    if isinstance(targets, str) and targets in _EVERY_LINEAR:
        return [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    named = [(name, module) for name, module in model.named_modules() if is_target(name, targets)]
    others = [name for name, module in named if not isinstance(module, nn.Linear) and _has_parameters(module)]
    if others:
        note_once(f"optim_target_modules: only linear layers are projected, not {', '.join(others)}")
    return [module.weight for _, module in named if isinstance(module, nn.Linear)]


def _has_parameters(module: nn.Module) -> bool:
    """Return whether a module has parameters itself, not only in the modules inside it."""
    return next(module.parameters(recurse=False), None) is not None


def _describe_linear_layers(model: nn.Module) -> str:
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "none"
