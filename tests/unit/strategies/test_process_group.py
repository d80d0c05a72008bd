"""How processes find one another, also where earlier ones have been, and which group they open."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ostinato.arguments.settings import ReplicaSettings
from ostinato.core.errors import ConfigError
from ostinato.core.world import World
from ostinato.strategies.choose import choose_strategy
from ostinato.strategies.process_group import _choose_backend, agree_on_name, barrier

CUDA = torch.device("cuda", 1)


def agree(store: dist.Store, ranks: range, size: int, seconds: float = 20) -> list[str]:
    """The name that each of these processes gets."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        worlds = [World(rank=rank, local_rank=rank, size=size, local_size=size) for rank in ranks]
        return list(pool.map(lambda world: agree_on_name(store, world, seconds), worlds))


def test_every_attempt_has_a_name_of_its_own() -> None:
    store = dist.HashStore()
    names = [agree(store, range(3), 3) for _ in range(3)]
    assert all(len(set(attempt)) == 1 for attempt in names)
    assert len({attempt[0] for attempt in names}) == 3


@pytest.mark.parametrize("died", [range(1), range(1, 2), range(2)])
def test_processes_that_died_while_they_waited_do_not_count(died: range) -> None:
    store = dist.HashStore()
    with pytest.raises(RuntimeError):
        agree(store, died, 3, seconds=0.05)
    with pytest.raises(RuntimeError):  # neither is a process that died taken for one that is there
        agree(store, range(1), 3, seconds=0.05)
    assert len(set(agree(store, range(3), 3))) == 1


def test_the_missing_are_named() -> None:
    with pytest.raises(RuntimeError, match=r"waited 0\.05 seconds for process 1, 2\n"):
        agree(dist.HashStore(), range(1), 3, seconds=0.05)
    with pytest.raises(RuntimeError, match=r"for process 0\n"):
        agree(dist.HashStore(), range(1, 2), 3, seconds=0.05)


class FakeTorch:
    """Writes down which device is used, and how a process group is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_open: bool) -> None:
        self.devices: list[torch.device] = []
        self.opened: list[tuple[Any, ...]] = []
        monkeypatch.setattr(torch.cuda, "set_device", self.devices.append)
        monkeypatch.setattr(dist, "is_initialized", lambda: is_open)
        monkeypatch.setattr(dist, "init_process_group", self.open)
        monkeypatch.setattr(dist, "barrier", lambda: None)
        for name, value in (("RANK", 1), ("LOCAL_RANK", 1), ("WORLD_SIZE", 2)):
            monkeypatch.setenv(name, str(value))
        monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)

    def open(self, backend: str, timeout: timedelta, device_id: torch.device | None) -> None:
        self.opened.append((backend, timeout, device_id))


@pytest.mark.parametrize(
    ("device", "backend", "opened", "bound"),
    [
        (CUDA, None, "nccl", CUDA),
        (CUDA, "gloo", "gloo", None),
        (torch.device("cpu"), None, "gloo", None),
        (torch.device("xpu", 1), None, "xccl", torch.device("xpu", 1)),
    ],
)
def test_a_barrier_opens_the_group(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, backend: str | None, opened: str, bound: torch.device | None
) -> None:
    fake = FakeTorch(monkeypatch, is_open=False)
    monkeypatch.setattr(torch.xpu, "set_device", fake.devices.append)
    barrier(device, backend=backend, timeout_seconds=77)
    assert fake.opened == [(opened, timedelta(seconds=77), bound)]
    assert fake.devices == ([] if device.type == "cpu" else [device])


def test_a_device_for_which_torch_has_no_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTorch(monkeypatch, is_open=False)
    monkeypatch.setattr(dist.Backend, "default_device_backend_map", {"cpu": "gloo"})
    with pytest.raises(ConfigError, match="no backend for hpu"):
        _choose_backend(torch.device("hpu", 0))
    assert not fake.opened


@pytest.mark.parametrize("size", [1, 2])
def test_the_device_is_used_also_in_a_group_of_the_script(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    fake = FakeTorch(monkeypatch, is_open=True)
    choose_strategy(World(rank=size - 1, size=size), CUDA, ReplicaSettings(None, None, None, None, None, 60))
    assert fake.devices == [CUDA] and not fake.opened
