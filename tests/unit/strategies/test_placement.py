"""Models that stay on the devices on which they were loaded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ostinato.strategies.placement import find_device, is_placed

CPU, META = torch.device("cpu"), torch.device("meta")


def model(**attributes: Any) -> nn.Module:
    made = nn.Sequential(nn.Linear(2, 2))
    vars(made).update(attributes)
    return made


@pytest.mark.parametrize(
    "attributes",
    [
        {"hf_device_map": {"": 0}},
        {"hf_device_map": {"": "cpu"}},
        {"hf_device_map": {"a": 0, "b": 1}},
        {"hf_device_map": {"a": 0, "b": "disk"}},
        {"quantization_method": "bitsandbytes"},
    ],
)
def test_loaded_onto_devices(attributes: dict[str, Any]) -> None:
    assert is_placed(model(**attributes))


@pytest.mark.parametrize(
    "attributes", [{}, {"hf_device_map": None}, {"hf_device_map": {}}, {"quantization_method": "gptq"}]
)
def test_free_to_move(attributes: dict[str, Any]) -> None:
    assert not is_placed(model(**attributes))


@pytest.mark.parametrize(("device_map", "expected"), [({"a": 0, "b": 1}, True), ({"": 0}, False)])
def test_a_part_keeps_the_whole_in_place_only_if_it_is_spread(device_map: dict[str, int], expected: bool) -> None:
    whole = nn.ModuleDict({"backbone": model(hf_device_map=device_map), "head": nn.Linear(2, 2)})
    assert is_placed(whole) is expected


def test_one_device_or_the_default() -> None:
    cuda, mps = torch.device("cuda", 0), torch.device("mps")
    assert find_device(model(), default=cuda) == CPU
    assert find_device(nn.Identity(), default=cuda) == cuda
    offloaded = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2, device=META)])
    assert find_device(offloaded, default=cuda) == CPU
    assert find_device(offloaded[1], default=cuda) == cuda
    assert find_device(model(), default=mps) == CPU
