"""One process has nobody to talk to."""

from __future__ import annotations

import torch
from torch import nn

from ostinato.arguments.settings import ReplicaSettings
from ostinato.core.world import World
from ostinato.strategies.choose import choose_strategy
from ostinato.strategies.process_group import barrier, join
from ostinato.strategies.single import SingleDevice

CPU = torch.device("cpu")


def test_alone() -> None:
    strategy = SingleDevice(CPU)
    value, tree = torch.tensor(3.0), {"a": torch.ones(2)}
    assert strategy.sum(value) is value
    assert strategy.mean(value) is value
    assert strategy.gather(tree, pad=-100) is tree
    assert (strategy.rank, strategy.size) == (0, 1)
    assert strategy.any(True) and not strategy.any(False)
    assert strategy.gather_objects(tree) == [tree] and strategy.broadcast_object(tree) is tree
    strategy.barrier()
    model = nn.Linear(2, 2)
    assert strategy.place(model) is model
    with strategy.accumulate(model, sync=False):
        pass


def test_world_of_one_is_single_and_opens_no_group() -> None:
    settings = ReplicaSettings(None, None, None, None, None, 60)
    assert isinstance(choose_strategy(World(), CPU, settings), SingleDevice)
    join(World(), CPU)
    barrier(CPU, backend=None, timeout_seconds=60)
    assert not torch.distributed.is_initialized()
