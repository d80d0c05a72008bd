"""Processes that find one another in a store where earlier ones have been."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as dist

from ostinato.core.world import World
from ostinato.strategies.process_group import agree_on_name


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
