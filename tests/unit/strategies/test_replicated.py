"""What DDP is told of the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ostinato.arguments.settings import ReplicaSettings
from ostinato.core.world import World
from ostinato.strategies import replicated

CUDA = torch.device("cuda", 1)


class FakeParameter:
    requires_grad = True

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)


class FakeModel(nn.Module):
    def __init__(self, *devices: str) -> None:
        super().__init__()
        self.devices = devices

    def parameters(self, recurse: bool = True) -> Any:
        return map(FakeParameter, self.devices)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("moved")


class FakeDDP(nn.Module):
    def __init__(self, model: nn.Module, device_ids: list[int] | None, **options: Any) -> None:
        super().__init__()
        self.device_ids = device_ids


@pytest.mark.parametrize(
    ("devices", "ids"),
    [(("cuda:1",), [1]), (("cuda:0", "cuda:1"), None), (("cuda:0",), None)],
)
def test_a_model_is_replicated_where_it_is(
    monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...], ids: list[int] | None
) -> None:
    monkeypatch.setattr(replicated, "DistributedDataParallel", FakeDDP)
    strategy = replicated.Replicated(CUDA, World(size=2), ReplicaSettings(False, None, None, None, None, 60))
    placed: Any = strategy.place(FakeModel(*devices))
    assert placed.device_ids == ids
