"""Copies of a device's numbers in the memory of the host, which the device makes beside its other work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .tree import tree_map


class HostCopy:
    """Copies of nested tensors, as they are now in the order of the device's work. `get` waits for their arrival.

    It waits for nothing that the device was given later: ask for the copy early, and read it late.

    >>> HostCopy([torch.tensor(1.5), torch.tensor(2.0)]).get()
    [tensor(1.5000), tensor(2.)]
    """

    def __init__(self, tree: Any) -> None:
        devices: set[torch.device] = set()

        def copy(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor) or leaf.is_cpu:
                return leaf
            devices.add(leaf.device)
            return _begin_copy(leaf.detach())

        self._copies = tree_map(copy, tree)
        self._arrivals = [Arrival(device) for device in devices]

    @property
    def has_arrived(self) -> bool:
        """Whether `get` returns at once, as for tensors on the host, which are not copied."""
        return not self._arrivals

    def get(self) -> Any:
        """Return the same tree with the copies."""
        while self._arrivals:
            self._arrivals.pop().wait()
        return self._copies


def _begin_copy(tensor: Tensor) -> Tensor:
    """Return a copy in pinned memory, or in other memory where torch has none for the device."""
    try:
        return tensor.to("cpu", non_blocking=True)
    except NotImplementedError:
        return torch.empty_like(tensor, device="cpu").copy_(tensor, non_blocking=True)


class Arrival:
    """The moment at which a device has done what it was given until now."""

    def __init__(self, device: torch.device) -> None:
        self._device, module = device, torch.get_device_module(device)
        kind: Any = getattr(module, "Event", None)
        self._event = None if kind is None else kind()
        if self._event is not None:
            stream = getattr(module, "current_stream", None)
            self._event.record() if stream is None else self._event.record(stream(device))

    def wait(self) -> None:
        if self._event is None:
            torch.accelerator.synchronize(self._device)
        else:
            self._event.synchronize()


def read_numbers(numbers: Sequence[Tensor | float]) -> list[float]:
    """Return numbers as floats; those on devices are read together, with one wait.

    >>> read_numbers([torch.tensor(1.5), 2.0])
    [1.5, 2.0]
    """
    tensors = [number for number in numbers if isinstance(number, Tensor)]
    read = iter(HostCopy(tensors).get())
    return [float(next(read)) if isinstance(number, Tensor) else number for number in numbers]
