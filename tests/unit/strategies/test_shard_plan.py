"""Which layers of a model are gathered together."""

from __future__ import annotations

import pytest
from torch import nn

from ostinato.arguments.shard_settings import ShardSettings
from ostinato.core.errors import ConfigError
from ostinato.strategies.shard_plan import find_blocks


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)


class Model(nn.Module):
    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(4, 10, bias=False)
        if tied:
            self.head.weight = self.embedding.weight


class Naming(Model):
    _no_split_modules = ["Layer", "Embedding"]


def name(model: nn.Module, settings: ShardSettings) -> list[str]:
    names = {module: name for name, module in model.named_modules()}
    return [names[block] for block in find_blocks(model, settings)]


def test_the_layers_that_the_model_names() -> None:
    assert name(Naming(), ShardSettings()) == ["embedding", "layers.0", "layers.1"]


def test_a_layer_that_shares_a_weight_is_left_to_the_rest() -> None:
    assert name(Naming(tied=True), ShardSettings()) == ["layers.0", "layers.1"]


def test_layers_by_their_class() -> None:
    assert name(Naming(), ShardSettings(classes=("Linear",))) == ["layers.0.inner", "layers.1.inner", "head"]


def test_layers_by_their_size() -> None:
    assert name(Model(), ShardSettings(min_parameters=40)) == ["embedding", "head"]
    assert name(Model(), ShardSettings(min_parameters=20)) == ["embedding", "layers.0.inner", "layers.1.inner", "head"]
    assert name(Model(tied=True), ShardSettings(min_parameters=40)) == []


def test_a_model_that_names_none_is_one_group() -> None:
    assert name(Model(), ShardSettings()) == []


def test_an_adapter_asks_its_base_model() -> None:
    wrapper = nn.Module()
    wrapper.base = Naming()
    assert name(wrapper, ShardSettings()) == ["base.embedding", "base.layers.0", "base.layers.1"]


def test_a_class_that_the_model_does_not_have() -> None:
    with pytest.raises(ConfigError, match="names Block, which the model does not have") as caught:
        find_blocks(Model(), ShardSettings(classes=("Layer", "Block")))
    assert "Layer" in caught.value.why
