"""Parameter groups: which parameters get weight decay."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from torch import nn

NORM_LAYERS: tuple[type[nn.Module], ...] = (nn.LayerNorm,)

# Searched in lower-cased names. Weights of norms that are not a `LayerNorm` are recognised by name only, so a
# `BatchNorm1d` called `bn` is decayed: that is what transformers does, and checkpoints depend on the grouping.
UNDECAYED_NAMES = (r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)")

_NAMES_OF_GROUPS = ("params", "model", "optimizer_dict")


def list_decay_parameters(model: nn.Module) -> list[str]:
    """Return the names of the parameters that get weight decay: all but biases and norms.

    >>> list_decay_parameters(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    ['0.weight']
    """
    return get_parameter_names(model, NORM_LAYERS, UNDECAYED_NAMES)


def get_parameter_names(
    model: nn.Module,
    forbidden_layer_types: Iterable[type[nn.Module]],
    forbidden_layer_names: Iterable[str] | None = None,
) -> list[str]:
    """Return the names of a model's parameters outside of forbidden layers, inner modules first.

    `forbidden_layer_names` are regular expressions, searched in the lower-cased name of a parameter relative to every
    module that contains it: `^norm` finds `norm.weight` and `encoder.norm.weight`. The type of `model` itself is not
    checked.

    Args:
        model: The model.
        forbidden_layer_types: The types of layers to leave out.
        forbidden_layer_names: Patterns of the names to leave out.

    Returns:
        The names.

    >>> get_parameter_names(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), [nn.LayerNorm], ["bias"])
    ['0.weight']
    """
    patterns = [re.compile(pattern) for pattern in forbidden_layer_names or ()]
    paths = _list_parameter_paths(model, tuple(forbidden_layer_types))
    return [".".join(path) for path in paths if not _is_match(path, patterns)]


def build_groups(model: nn.Module, decay_names: Collection[str], weight_decay: float) -> list[dict[str, Any]]:
    """Return the trainable parameters in two groups for an optimizer: with weight decay, and without.

    >>> model = nn.Linear(2, 2)
    >>> decayed, undecayed = build_groups(model, list_decay_parameters(model), weight_decay=0.1)
    >>> decayed["params"][0] is model.weight, decayed["weight_decay"], undecayed["weight_decay"]
    (True, 0.1, 0.0)
    """
    chosen = set(decay_names)
    decayed, undecayed = [], []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (decayed if name in chosen else undecayed).append(parameter)
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": undecayed, "weight_decay": 0.0},
    ]


def split_given_groups(options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the parameter groups that the options of an optimizer contain, if any, and the other options.

    `get_optimizer_cls_and_kwargs` of a subclass may return groups of its own under one of transformers' three names.

    >>> split_given_groups({"lr": 0.1, "optimizer_dict": [{"params": []}]})
    ([{'params': []}], {'lr': 0.1})
    """
    given = [options[name] for name in _NAMES_OF_GROUPS if name in options]
    return given[-1] if given else None, {name: one for name, one in options.items() if name not in _NAMES_OF_GROUPS}


def _list_parameter_paths(
    module: nn.Module, forbidden: tuple[type[nn.Module], ...], prefix: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the path of every parameter slot, empty ones included, below and in `module`."""
    for name, child in module.named_children():
        if not isinstance(child, forbidden):
            yield from _list_parameter_paths(child, forbidden, (*prefix, name))
    for name in module._parameters:  # not named_parameters: a tied parameter has a name in each place it is used
        yield (*prefix, name)


def _is_match(path: tuple[str, ...], patterns: list[re.Pattern[str]]) -> bool:
    """Return whether a pattern is found in the name relative to any of the modules around the parameter."""
    names = [".".join(path[start:]).lower() for start in range(len(path))]
    return any(pattern.search(name) for pattern in patterns for name in names)
