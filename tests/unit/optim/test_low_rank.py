"""Parameter groups of GaLore and APOLLO: which weights are projected."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ostinato.arguments.settings import OptimizerSettings
from ostinato.core.choices import OptimizerNames
from ostinato.core.errors import ConfigError
from ostinato.core.notices import forget_notices
from ostinato.optim import low_rank


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.blocks = nn.ModuleList(nn.ModuleDict({"q": nn.Linear(4, 4), "norm": nn.LayerNorm(4)}) for _ in range(2))
        self.head = nn.Linear(4, 5, bias=False)


def split(model: nn.Module, targets: str | list[str] | None) -> list[list[str]]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    settings = OptimizerSettings(OptimizerNames.GALORE_ADAMW, 0.1, 0.0, (0.9, 0.999), 1e-8, {}, targets)
    groups = low_rank.split_parameters(model, settings, {"rank": 2})
    assert "rank" not in groups[0] and groups[1]["rank"] == 2
    return [[names[id(parameter)] for parameter in group["params"]] for group in groups]


@pytest.mark.parametrize(
    ("targets", "projected"),
    [
        ("all-linear", ["blocks.0.q.weight", "blocks.1.q.weight", "head.weight"]),
        (r"blocks\.1\..*", ["blocks.1.q.weight"]),
        (["q"], ["blocks.0.q.weight", "blocks.1.q.weight"]),
        (["head", "0.q"], ["blocks.0.q.weight", "head.weight"]),
        ([r".*1\.q"], ["blocks.1.q.weight"]),
    ],
)
def test_weights_of_named_linear_layers_are_projected(targets: str | list[str], projected: list[str]) -> None:
    model = Model()
    others, chosen = split(model, targets)
    assert chosen == projected
    assert sorted(others + chosen) == sorted(name for name, _ in model.named_parameters())


@pytest.mark.parametrize("targets", [None, [], "q", ["embedding"], ["all-linear"]])
def test_no_linear_layer_is_an_error_that_lists_them(targets: str | list[str] | None) -> None:
    with pytest.raises(ConfigError) as error:
        split(Model(), targets)
    assert "names no linear layer" in error.value.what
    assert "blocks.0.q, blocks.1.q, head" in error.value.why


def test_other_layers_that_are_named_are_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    split(Model(), ["blocks"])
    told = capsys.readouterr().err
    assert "not blocks.0.norm, blocks.1.norm" in told
    assert "blocks.0," not in told, "a container has nothing to project"


def test_a_shared_weight_is_projected_once() -> None:
    model = Model()
    model.blocks[1].q.weight = model.blocks[0].q.weight
    _, chosen = split(model, ["q"])
    assert chosen == ["blocks.0.q.weight"]
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))]}]
    assert torch.optim.SGD(groups, lr=0.1).param_groups
