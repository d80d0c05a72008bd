"""What a launcher tells about the processes of a run."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from ostinato.core.world import World

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def launch(**variables: int) -> World:
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        return World.from_environment()

    return launch


def test_no_launcher(launched) -> None:
    world = launched()
    assert world == World(rank=0, local_rank=0, size=1, local_size=1)
    assert world.is_main
    assert world.is_local_main


def test_torchrun_on_two_machines(launched) -> None:
    world = launched(RANK=5, LOCAL_RANK=1, WORLD_SIZE=8, LOCAL_WORLD_SIZE=4)
    assert world == World(rank=5, local_rank=1, size=8, local_size=4)
    assert not world.is_main
    assert not world.is_local_main


def test_main_of_the_second_machine(launched) -> None:
    world = launched(RANK=4, LOCAL_RANK=0, WORLD_SIZE=8, LOCAL_WORLD_SIZE=4)
    assert world.is_local_main
    assert not world.is_main


def test_launcher_that_says_only_the_rank(launched) -> None:
    assert launched(RANK=1, WORLD_SIZE=2) == World(rank=1, local_rank=1, size=2, local_size=2)


def test_world_of_one_under_a_launcher(launched) -> None:
    assert launched(RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, LOCAL_WORLD_SIZE=1) == World()


def test_facts_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        World().rank = 1  # type: ignore[misc]


def test_cpu_when_asked() -> None:
    assert World(rank=1, local_rank=1, size=2).device(use_cpu=True) == torch.device("cpu")
