"""Which parameters get weight decay: by rule, and the same ones as in transformers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.optim.groups import build_groups, get_parameter_names, list_decay_parameters

# fmt: off
WORDS = [
    "bias", "Bias", "my_bias", "biased", "xbias", "b", "LayerNorm", "layer_norm", "layernorm1", "RMSNorm",
    "rms_norm", "rmsnorm_x", "norm", "NORM", "norm1", "normalizer", "abnormal", "norms", "norm_layer", "q_norm",
    "mynorm", "ln", "ln_f", "batchnorm", "bn", "groupnorm", "scale", "weight", "normal", "instancenorm",
    "layer_norms", "rms_normx", "lay", "ernorm", "_norm", "norm_", "_bias_", "weight_norm", "gamma", "x",
]
# fmt: on


class Holder(nn.Module):
    """A module with the parameters and modules that a test gives it."""


class SubclassedNorm(nn.LayerNorm):
    def __init__(self) -> None:
        super().__init__(2)
        self.inner = nn.Linear(2, 2)


class HomemadeNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))


LAYERS = (
    lambda: nn.Linear(2, 2),
    lambda: nn.LayerNorm(2),
    lambda: nn.RMSNorm(2),
    lambda: nn.BatchNorm1d(2),
    lambda: nn.GroupNorm(1, 2),
    lambda: nn.LSTM(2, 2),
    lambda: nn.MultiheadAttention(2, 1),
    lambda: nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 2)),
    lambda: nn.ParameterDict({"norm": nn.Parameter(torch.ones(1)), "z": nn.Parameter(torch.ones(1))}),
    SubclassedNorm,
    HomemadeNorm,
)


def random_module(draw: random.Random, depth: int) -> nn.Module:
    module = Holder()
    words = draw.sample(WORDS, 8)
    for word in words[:3]:
        module.register_parameter(word, nn.Parameter(torch.ones(1)) if draw.random() < 0.9 else None)
    for word in words[3:]:
        child = random_module(draw, depth - 1) if depth and draw.random() < 0.5 else draw.choice(LAYERS)()
        module.add_module(word, child)
    if draw.random() < 0.3:
        module.tied = next(module.parameters())
    return module


def names_of(model: nn.Module, parameters: list[nn.Parameter]) -> list[str]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(parameter)] for parameter in parameters]


def test_biases_and_norms_are_not_decayed() -> None:
    model = nn.ModuleDict(
        {"embed": nn.Embedding(3, 2), "norm": HomemadeNorm(), "x": nn.LayerNorm(2), "out": nn.Linear(2, 2)}
    )
    assert list_decay_parameters(model) == ["embed.weight", "out.weight"]


@pytest.mark.parametrize(
    ("name", "decayed"),
    [
        ("bias", False),
        ("xbiasx", False),
        ("norm", False),
        ("q_norm", False),
        ("LayerNorm2", False),
        ("rmsnorm_1", False),
        ("norm1", True),
        ("normalizer", True),
        ("batchnorm", True),
    ],
)
def test_names_decide(name: str, decayed: bool) -> None:
    model = Holder()
    model.register_parameter(name, nn.Parameter(torch.ones(1)))
    outer = nn.Sequential(model)
    assert list_decay_parameters(model) == [name] * decayed
    assert list_decay_parameters(outer) == [f"0.{name}"] * decayed


def test_inner_parameters_come_first_and_types_are_forbidden_with_all_below() -> None:
    model = Holder()
    model.own = nn.Parameter(torch.ones(1))
    model.layer = nn.Linear(2, 2)
    model.norm = SubclassedNorm()
    assert get_parameter_names(model, [nn.LayerNorm]) == ["layer.weight", "layer.bias", "own"]


def test_groups_hold_every_trainable_parameter_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 2))
    model[1].weight = model[0].weight  # type: ignore[union-attr]
    model[3].requires_grad_(False)
    decayed, undecayed = build_groups(model, list_decay_parameters(model), 0.1)
    assert names_of(model, decayed["params"]) == ["0.weight"]
    assert names_of(model, undecayed["params"]) == ["0.bias", "1.bias", "2.weight", "2.bias"]
    assert (decayed["weight_decay"], undecayed["weight_decay"]) == (0.1, 0.0)


def test_an_empty_group_stays() -> None:
    model = nn.Linear(2, 2, bias=False)
    assert [len(group["params"]) for group in build_groups(model, ["weight"], 0.1)] == [1, 0]


@pytest.mark.parametrize("seed", range(40))
def test_same_names_as_transformers(seed: int, peer: Any) -> None:
    draw = random.Random(seed)
    model = random_module(draw, depth=2)
    assert list_decay_parameters(model) == peer.Trainer.get_decay_parameter_names(None, model)
    types = draw.sample([nn.LayerNorm, nn.Linear, Holder, HomemadeNorm], 2)
    patterns = draw.sample([r"norm", r"^norm", r"bias$", r"^x\.", r"Norm", r"\.weight", r"layer.?norm"], 3)
    for forbidden in (None, [], patterns):
        assert get_parameter_names(model, types, forbidden) == peer.get_parameter_names(model, types, forbidden)


def test_same_groups_as_transformers(tmp_path: Path, peer: Any) -> None:
    model = random_module(random.Random(1), depth=1)
    next(model.parameters()).requires_grad_(False)
    args = peer.TrainingArguments(str(tmp_path), weight_decay=0.1, use_cpu=True, report_to=[])
    reference = peer.Trainer(model, args).create_optimizer().param_groups
    groups = build_groups(model, list_decay_parameters(model), 0.1)
    assert len(groups) == len(reference)
    for group, expected in zip(groups, reference, strict=True):
        assert names_of(model, group["params"]) == names_of(model, expected["params"])
        assert group["weight_decay"] == expected["weight_decay"]
