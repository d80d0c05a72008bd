"""Rates by layer and by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ostinato import TrainingArguments, optimizer_with_rates
from ostinato.core.errors import ConfigError
from ostinato.optim.layer_rates import build_groups_with_rates
from tests.support import tiny
from tests.support.resumed_runs import Net


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(4, 2)
        self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
        self.norm = nn.LayerNorm(2)
        self.head = nn.Linear(2, 1)


def rates(model: nn.Module, **options) -> dict[str, tuple[str, float, float]]:
    names = {id(one): name for name, one in model.named_parameters()}
    groups = build_groups_with_rates(model, 1.0, 0.1, **{"rules": {}, **options})
    return {
        names[id(one)]: (group["name"], group["lr"], group["weight_decay"])
        for group in groups
        for one in group["params"]
    }


def test_every_layer_has_a_share_of_the_one_above() -> None:
    found = rates(Tower(), layer_decay=0.5)
    assert found == {
        "embeddings.weight": ("before layers", 0.125, 0.1),
        "layers.0.weight": ("layers.0", 0.25, 0.1),
        "layers.0.bias": ("layers.0", 0.25, 0.0),
        "layers.1.weight": ("layers.1", 0.5, 0.1),
        "layers.1.bias": ("layers.1", 0.5, 0.0),
        "layers.2.weight": ("layers.2", 1.0, 0.1),
        "layers.2.bias": ("layers.2", 1.0, 0.0),
        "norm.weight": ("after layers", 1.0, 0.0),
        "norm.bias": ("after layers", 1.0, 0.0),
        "head.weight": ("after layers", 1.0, 0.1),
        "head.bias": ("after layers", 1.0, 0.0),
    }


def test_rules_come_first_and_the_first_of_them_counts() -> None:
    found = rates(Tower(), rules={"head.bias": 3.0, "head": 2.0, "layers.*.bias": 4.0}, layer_decay=0.5)
    assert found["head.bias"] == ("head.bias", 3.0, 0.0)
    assert found["head.weight"] == ("head", 2.0, 0.1)
    assert found["layers.1.bias"] == ("layers.*.bias", 4.0, 0.0)
    assert found["layers.1.weight"] == ("layers.1", 0.5, 0.1)


def test_without_layers_the_rest_has_the_rate_of_the_arguments() -> None:
    assert rates(Net(), rules={"head": 2.0})["body.weight"] == ("rest", 1.0, 0.1)


class Translator(nn.Module):
    """An encoder of two layers and a decoder of three, named as models of transformers name theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Embedding(3, 2)
        self.encoder, self.decoder = Tower(), Tower()
        del self.encoder.layers[2]


def test_an_encoder_and_a_decoder_have_a_last_layer_each() -> None:
    found = {name: rate for name, (_, rate, _) in rates(Translator(), layer_decay=0.5).items() if "weight" in name}
    assert found["shared.weight"] == 0.125
    for part, layers in (("encoder", 2), ("decoder", 3)):
        assert found[f"{part}.embeddings.weight"] == 0.5**layers
        assert [found[f"{part}.layers.{n}.weight"] for n in range(layers)] == [0.5**n for n in range(layers)][::-1]
        assert found[f"{part}.norm.weight"] == found[f"{part}.head.weight"] == 1.0


def test_what_is_not_trained_is_in_no_group() -> None:
    model = Tower()
    model.embeddings.requires_grad_(False)
    assert "embeddings.weight" not in rates(model, layer_decay=0.5)


def test_a_model_of_transformers() -> None:
    found = rates(tiny.bert(), rules={"classifier": 7.0}, layer_decay=0.5)
    layers = {name: rate for name, rate, _ in found.values() if "layer." in name}
    assert sorted(layers.values()) == [0.5 ** (len(layers) - 1 - n) for n in range(len(layers))]
    assert {rate for name, rate, _ in found.values() if name == "before layers"} == {0.5 ** len(layers)}
    assert found["classifier.weight"][1] == 7.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rules": {"haed": 1.0}}, "called 'haed'"),
        ({"rules": {"head": -1.0}}, "is -1.0"),
        ({"rules": {"head": "fast"}}, "the rate of 'head' is 'fast'"),
        ({"layer_decay": 1.5}, "no share"),
        ({"layer_decay": "0.9"}, "no share"),
    ],
)
def test_mistakes(options: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        rates(Tower(), **options)


def test_a_model_without_layers_has_no_layer_decay() -> None:
    with pytest.raises(ConfigError, match="has none"):
        rates(Net(), layer_decay=0.5)


def test_the_optimizer_is_that_of_the_arguments(tmp_path: Path) -> None:
    args = TrainingArguments(str(tmp_path), optim="sgd", learning_rate=0.3, report_to="none", use_cpu=True)
    kind, options = optimizer_with_rates(Net(), args, {"head": 0.2})
    assert kind is torch.optim.SGD and options["lr"] == 0.3
