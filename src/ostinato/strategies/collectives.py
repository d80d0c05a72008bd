"""Collectives: values, rows and objects of every process, on every process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from ..core.choices import ParallelMode
from ..core.tree import tree_map, truncate
from ..core.world import World
from .failure_record import record_failure
from .mesh import (
    DataGroups,
    count_data_processes,
    find_background_group,
    find_data_groups,
    find_host_group,
)
from .process_watch import watch_processes


@dataclass
class NumbersUnderWay:
    """Numbers that arrive beside other work."""

    received: Tensor  # a row for each process
    work: Any
    sent: Tensor  # has to stay in memory until it has left

    def get(self) -> list[list[float]]:
        if self.work is not None:
            self.work.wait()
            self.work = None
        return self.received.tolist()


@dataclass
class ProcessCollectives:
    """The collectives of strategies for several processes.

    Rows are summed and gathered over the processes with rows of their own (see `mesh`). Flags, files and errors
    concern all processes.
    """

    device: torch.device
    world: World
    tensor_size: int = field(default=1, kw_only=True)  # processes in a row that compute the same rows
    timeout_seconds: int = field(default=1800, kw_only=True)  # after which a wait for other processes fails

    @property
    def rank(self) -> int:
        return count_data_processes(self.world, self.tensor_size)[0]

    @property
    def size(self) -> int:
        return count_data_processes(self.world, self.tensor_size)[1]

    @property
    def processes(self) -> int:
        return self.world.size

    @property
    def process_index(self) -> int:
        return self.world.rank

    def sum(self, value: Tensor) -> Tensor:
        total = value.detach().clone()
        if self.size > 1:
            dist.all_reduce(total, group=self._groups.choose(total))
        return total

    def mean(self, value: Tensor) -> Tensor:
        return self.sum(value) / self.size

    def gather(self, tree: Any, *, pad: float | None = None) -> Any:
        return tree_map(
            lambda leaf: _gather(leaf, self.device, pad, self._groups) if isinstance(leaf, Tensor) else leaf, tree
        )

    def exchange(self, numbers: Sequence[float]) -> NumbersUnderWay:
        own = torch.tensor(numbers, dtype=torch.float64)
        received = torch.empty((self.processes, len(own)), dtype=torch.float64)
        work = dist.all_gather(list(received.unbind()), own, group=self._host, async_op=True)
        return NumbersUnderWay(received, work, own)

    def any(self, flag: bool) -> bool:
        total = torch.tensor(int(flag))
        dist.all_reduce(total, group=self._host)
        return bool(total)

    def gather_objects(self, value: Any) -> list[Any]:
        return _gather_objects(value, self._groups.host)

    def gather_from_all(self, value: Any) -> list[Any]:
        return _gather_objects(value, self._host)

    def open_background_gather(self) -> Callable[[Any], list[Any]]:
        return partial(_gather_objects, group=find_background_group(self._timeout))

    def broadcast_object(self, value: Any) -> Any:
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self._host)
        return values[0]

    def barrier(self) -> None:
        dist.barrier()

    @contextmanager
    def watch(self, find_step: Callable[[], int], timeout_seconds: float) -> Iterator[None]:
        with record_failure(), watch_processes(self.world, find_step, timeout_seconds):
            yield

    @property
    def _groups(self) -> DataGroups:
        return find_data_groups(self.tensor_size, self._timeout)

    @property
    def _host(self) -> Any:
        return find_host_group(self._timeout)

    @property
    def _timeout(self) -> timedelta:
        return timedelta(seconds=self.timeout_seconds)


def distributed_concat(tensor: Any, num_total_examples: int | None = None) -> Any:
    """Concatenate every tensor of a tree over the processes, and return the first `num_total_examples` rows.

    Args:
        tensor: A tree of tensors; every process has one of the same structure.
        num_total_examples: The number of rows to keep; by default all.

    Returns:
        A tree of the same structure, the same in every process.

    >>> distributed_concat(losses, num_total_examples=len(eval_dataset))  # doctest: +SKIP
    """
    groups = find_data_groups()
    joined = tree_map(
        lambda leaf: _gather(leaf, leaf.device, None, groups) if isinstance(leaf, Tensor) else leaf, tensor
    )
    return joined if num_total_examples is None else truncate(joined, num_total_examples)


def nested_gather(tensors: Any, parallel_mode: ParallelMode, name: str | None = None) -> Any:
    """Concatenate every tensor of a tree over the processes, if there are several.

    Args:
        tensors: A tree of tensors.
        parallel_mode: `args.parallel_mode`.
        name: Not used.

    Returns:
        A tree of the same structure, the same in every process.

    >>> nested_gather([torch.ones(1)], ParallelMode.NOT_PARALLEL)
    [tensor([1.])]
    """
    return distributed_concat(tensors) if parallel_mode is ParallelMode.DISTRIBUTED else tensors


def _gather_objects(value: Any, group: Any) -> list[Any]:
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def _gather(tensor: Tensor, device: torch.device, pad: float | None, groups: DataGroups) -> Tensor:
    """Concatenate a tensor over the processes. The number of rows may differ from one to the next."""
    tensor = torch.atleast_1d(tensor.detach()).contiguous().to(device)
    shape = torch.tensor(tensor.shape)
    shapes = [torch.zeros_like(shape) for _ in range(dist.get_world_size(groups.host))]
    dist.all_gather(shapes, shape, group=groups.host)
    sizes = [tuple(int(size) for size in one) for one in torch.stack(shapes).tolist()]
    widest = [max(dimension) for dimension in zip(*sizes, strict=True)]
    filler = 0 if pad is None else pad
    # All-gather needs equal shapes: pad, exchange, cut the padded rows off again.
    padding = [
        amount
        for have, want in zip(reversed(tensor.shape), reversed(widest), strict=True)
        for amount in (0, want - have)
    ]
    filled = F.pad(tensor, padding, value=filler) if any(padding) else tensor
    gathered = [torch.empty_like(filled) for _ in sizes]
    dist.all_gather(gathered, filled, group=groups.choose(filled))
    return torch.cat([part[: size[0]] for part, size in zip(gathered, sizes, strict=True)])
