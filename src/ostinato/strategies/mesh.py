"""The processes of a run as a mesh: those that compute rows of their own, and those that share the rows.

    tensor_size = 2, 8 processes:    rows of batch 0    1    2    3
                                         ranks    0 1  2 3  4 5  6 7

With tensor parallelism, `tensor_size` processes in a row compute the same rows, each with its part of every layer.
Sums over rows, and the division of a batch among processes, leave all but one of them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from ..core.errors import ConfigError
from ..core.world import World


@dataclass(frozen=True)
class DataGroups:
    """The processes that compute other rows than this one, and this one: to exchange tensors of devices and of hosts.

    None is the default group.
    """

    device: Any = None
    host: Any = None

    def choose(self, tensor: torch.Tensor) -> Any:
        """Return the group that exchanges a tensor."""
        return self.host if tensor.is_cpu else self.device


_found: dict[tuple[Any, int], DataGroups] = {}  # by the default group and the size of tensor parallelism


def find_data_groups(tensor_size: int = 1, timeout: timedelta | None = None) -> DataGroups:
    """Return the groups over which rows are gathered and summed. All processes have to call it the first time.

    Waits in a new group fail after `timeout`, by default torch's own of half an hour.
    """
    key = (dist.group.WORLD, tensor_size)
    if key not in _found:
        for old in [old for old in _found if old[0] is not key[0]]:
            del _found[old]
        _found[key] = _make_groups(tensor_size, timeout)
    return _found[key]


def find_host_group(timeout: timedelta) -> Any:
    """Return a group of all processes that exchanges tensors in main memory. None: the default group.

    Numbers of the host that go through a device have to wait for all that it was given before.
    """
    return find_data_groups(timeout=timeout).host


_background: dict[Any, Any] = {}  # by the default group


def find_background_group(timeout: timedelta) -> Any:
    """Return a group of all processes for a thread beside training. All processes have to call it the first time.

    Exchanges of two threads in one group would be taken for one another.
    """
    if dist.group.WORLD not in _background:
        _background.clear()
        _background[dist.group.WORLD] = dist.new_group(backend="gloo", timeout=timeout)
    return _background[dist.group.WORLD]


def _make_groups(tensor_size: int, timeout: timedelta | None) -> DataGroups:
    reaches_hosts = any(name in str(dist.get_backend_config()) for name in ("gloo", "mpi"))
    if tensor_size == 1:
        return DataGroups(host=None if reaches_hosts else dist.new_group(backend="gloo", timeout=timeout))
    size = dist.get_world_size()
    ranks = [list(range(first, size, tensor_size)) for first in range(tensor_size)]
    own, _ = dist.new_subgroups_by_enumeration(ranks, timeout=timeout)
    if reaches_hosts:
        return DataGroups(own, own)
    return DataGroups(own, dist.new_subgroups_by_enumeration(ranks, timeout=timeout, backend="gloo")[0])


def count_data_processes(world: World, tensor_size: int) -> tuple[int, int]:
    """Return the number of this process among those with other rows, and how many there are.

    >>> count_data_processes(World(rank=5, size=8), tensor_size=2)
    (2, 4)
    """
    return world.rank // tensor_size, world.size // tensor_size


# Names under which transformers, torchtitan and scripts divide layers: processes along these axes share their rows.
_SHARED_ROWS = ("tp", "ep", "etp", "tensor")


def build_mesh(device: torch.device, *, copies: int, parts: int, tensor_size: int) -> DeviceMesh:
    """Return the mesh of all processes; of the axes with one process, only that of the parts."""
    axes = {"dp_replicate": copies, "dp_shard": parts, "tp": tensor_size}
    used = {name: size for name, size in axes.items() if size > 1 or (name == "dp_shard" and (copies > 1))}
    return init_device_mesh(device.type, tuple(used.values()), mesh_dim_names=tuple(used))


def find_given_mesh(model: nn.Module) -> DeviceMesh | None:
    """Return the mesh of a model that was passed divided: that of the tensor with the most axes. None: it is whole."""
    meshes = [parameter.device_mesh for parameter in model.parameters() if isinstance(parameter, DTensor)]
    return max(meshes, key=lambda mesh: mesh.ndim, default=None)


def find_tensor_size(model: nn.Module, world: World, *, is_gathered: bool) -> int:
    """Return how many processes share their rows in a model that was passed divided; 1 if it is whole.

    An axis without a name is one of those, unless the weights are gathered for every layer (FSDP).
    """
    mesh = find_given_mesh(model)
    if mesh is None:
        return 1
    names = mesh.mesh_dim_names or ("dp_shard" if is_gathered else "tp",) * mesh.ndim
    shared = [axis for axis, name in enumerate(names) if name in _SHARED_ROWS]
    size = 1
    for axis in shared:
        size *= mesh.size(axis)
    own = sorted(mesh.mesh.movedim(shared, tuple(range(-len(shared), 0))).reshape(-1, size).tolist()) if shared else []
    if any(ranks != list(range(ranks[0], ranks[0] + size)) for ranks in own) or world.size % size:
        raise ConfigError(
            what=f"the processes that share their rows are not neighbours in the model's mesh {mesh}",
            why="rows are divided among groups of neighbouring ranks",
            fix="make tensor parallelism the last axis of the mesh: (dp, tp)",
        )
    return size
