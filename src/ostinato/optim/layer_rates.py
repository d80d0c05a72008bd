"""Learning rates by layer and by name, as parameter groups of an optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any

import torch
from torch import nn

from ..arguments.settings import OptimizerSettings
from ..arguments.training_args import TrainingArguments
from ..core.errors import ConfigError
from .groups import list_decay_parameters
from .optimizers import choose_optimizer


def optimizer_with_rates(
    model: nn.Module,
    args: TrainingArguments,
    rules: Mapping[str, float] | None = None,
    *,
    layer_decay: float | None = None,
) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """Return the arguments' optimizer with rates by name and by layer, for `Trainer(optimizer_cls_and_kwargs=…)`.

    Every group has a name; `RatesCallback` logs one rate for each. Schedules scale all rates alike. Weight decay
    leaves out biases and norms, as usual.

    Args:
        model: the model to be trained.
        args: the arguments with the optimizer, its rate and its weight decay.
        rules: a rate by the name of a module or parameter, or by a pattern (`*`); the first match counts.
        layer_decay: the last layer has `learning_rate`, and each layer below it this share of the rate of the one
            above. Parameters before the layers (embeddings) have one share less, those after them (the head) the full
            rate. An encoder and a decoder have a last layer each.

    Returns:
        The class of the optimizer and its keyword arguments, with the parameter groups.

    Raises:
        ConfigError: `layer_decay` is not above 0 and at most 1, or the model has no numbered layers; or a rule has a
            negative rate, or matches no trainable parameter.

    >>> chosen = optimizer_with_rates(model, args, {"classifier": 1e-3}, layer_decay=0.9)  # doctest: +SKIP
    >>> Trainer(model, args, optimizer_cls_and_kwargs=chosen, callbacks=[RatesCallback()])  # doctest: +SKIP
    """
    settings = OptimizerSettings.of(args)
    kind, options = choose_optimizer(settings)
    groups = build_groups_with_rates(
        model, settings.learning_rate, settings.weight_decay, rules=rules or {}, layer_decay=layer_decay
    )
    return kind, {**options, "optimizer_dict": groups}


def build_groups_with_rates(
    model: nn.Module,
    rate: float,
    weight_decay: float,
    *,
    rules: Mapping[str, float],
    layer_decay: float | None = None,
) -> list[dict[str, Any]]:
    """Return the trainable parameters grouped by rate, for each rate with weight decay and without.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    >>> [
    ...     (g["name"], g["lr"], g["weight_decay"])
    ...     for g in build_groups_with_rates(model, 1.0, 0.1, rules={}, layer_decay=0.5)
    ... ]
    [('0', 0.5, 0.1), ('0', 0.5, 0.0), ('1', 1.0, 0.1), ('1', 1.0, 0.0)]
    """
    if layer_decay is not None and not (isinstance(layer_decay, Real) and 0 < layer_decay <= 1):
        raise ConfigError(
            what=f"layer_decay={layer_decay!r} is no share of a rate",
            why="each layer has this share of the rate of the layer above it",
            fix="choose it between 0 and 1, for example 0.9",
        )
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    _check_rules(rules, trained)
    layers = _Layers.of(list(dict(model.named_parameters()))) if layer_decay is not None else None
    if layer_decay is not None and layers is None:
        raise ConfigError(
            what="layer_decay needs layers, and this model has none",
            why="layers are recognized by the numbers in the names of parameters, such as encoder.layer.3.weight",
            fix='give rates by name instead: rules={"head": 1e-3}',
        )
    decayed = set(list_decay_parameters(model))
    groups: dict[tuple[str, bool], dict[str, Any]] = {}
    for name, parameter in trained.items():
        pattern = next((one for one in rules if _is_match(name, one)), None)
        if pattern is not None:
            label, own = pattern, rules[pattern]
        elif layers is not None and layer_decay is not None:
            label, own = layers.label(name), rate * layer_decay ** layers.count_layers_above(name)
        else:
            label, own = "rest", rate
        is_decayed = name in decayed
        group = groups.setdefault(
            (label, is_decayed),
            {"params": [], "lr": own, "weight_decay": weight_decay if is_decayed else 0.0, "name": label},
        )
        group["params"].append(parameter)
    return list(groups.values())


class _Layers:
    """The layers of a model: its longest row of numbered modules and the rows that match it, as in encoder-decoders.

    Rows match if they have the same name and the same depth. Each of them has a last layer.
    """

    def __init__(self, rows: dict[str, int], names: list[str]) -> None:
        self.rows = rows  # the number of layers, by the prefix of their names
        self._place = {name: at for at, name in enumerate(names)}  # in the order of definition
        places = [_split_number(name) for name in names]
        self._first = {row: next(at for at, one in enumerate(places) if one and one[0] == row) for row in rows}

    @classmethod
    def of(cls, names: list[str]) -> _Layers | None:
        numbered: dict[str, set[int]] = {}
        for name in names:
            if (place := _split_number(name)) is not None:
                numbered.setdefault(place[0], set()).add(place[1])
        if not numbered:
            return None
        longest = max(numbered, key=lambda one: len(numbered[one]))
        alike = {row: max(layers) + 1 for row, layers in numbered.items() if _classify(row) == _classify(longest)}
        return cls(alike, names)

    def count_layers_above(self, name: str) -> int:
        """Return how many layers above it are trained with a larger rate."""
        place = _split_number(name)
        if place is not None and place[0] in self.rows:
            return self.rows[place[0]] - 1 - place[1]
        return max(self.rows[row] for row in self._find_near(name)) if self._is_before(name) else 0

    def label(self, name: str) -> str:
        place = _split_number(name)
        if place is not None and place[0] in self.rows:
            return f"{place[0]}{place[1]}"
        if not self._is_before(name):
            return "after layers"
        near = self._find_near(name)
        return "before layers" if len(near) == len(self.rows) else f"before {', '.join(row[:-1] for row in near)}"

    def _is_before(self, name: str) -> bool:
        return self._place[name] < min(self._first[row] for row in self._find_near(name))

    def _find_near(self, name: str) -> list[str]:
        """Return the rows in the same part of the model: the embeddings of a decoder are below its layers."""
        shared = {row: _count_shared(name.split("."), row.split(".")) for row in self.rows}
        return [row for row, parts in shared.items() if parts == max(shared.values())]


def _classify(row: str) -> tuple[str, int]:
    parts = row.split(".")
    return parts[-2] if len(parts) > 1 else "", len(parts)


def _count_shared(one: list[str], other: list[str]) -> int:
    """Return how many leading parts two names have in common."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _split_number(name: str) -> tuple[str, int] | None:
    """Return the part of a name before its first number, and the number.

    >>> _split_number("bert.encoder.layer.3.output.dense.weight")
    ('bert.encoder.layer.', 3)
    """
    parts = name.split(".")
    at = next((at for at, part in enumerate(parts) if part.isdigit()), None)
    return None if at is None else ("".join(f"{part}." for part in parts[:at]), int(parts[at]))


def _is_match(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _check_rules(rules: Mapping[str, float], trained: Mapping[str, Any]) -> None:
    for pattern, rate in rules.items():
        if not isinstance(rate, Real) or not rate >= 0:
            raise ConfigError(
                what=f"the rate of {pattern!r} is {rate!r}",
                why="a rate is a number that is not negative",
                fix=f"{{{pattern!r}: 1e-4}}",
            )
        if not any(_is_match(name, pattern) for name in trained):
            parts = sorted({name.split(".")[0] for name in trained})
            raise ConfigError(
                what=f"no parameter that is trained is called {pattern!r}",
                why="a rule is the name of a module or parameter, or a pattern with *",
                fix=f"parts of this model are {', '.join(parts)}",
            )
