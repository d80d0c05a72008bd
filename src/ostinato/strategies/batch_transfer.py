"""The way of batches to a device: copied beside what it computes, and without a wait of the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..core.protocols import Batch
from ..core.tree import tree_map


@dataclass
class BatchTransfer:
    """Copy batches to a device on a stream of their own, each while the one before it is computed.

    Pinned memory is copied without a wait. Other memory is too if `non_blocking`, for which torch keeps it unchanged
    until the device has it. Devices without streams that torch knows copy in the order of their work.
    """

    device: torch.device
    non_blocking: bool = False
    _stream: Any = field(default=None, repr=False)  # created for the first batch

    def stay_ahead(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield each batch on the device, after the copy of the next one has begun; on a CPU, as it is."""
        return iter(batches) if self.device.type == "cpu" else self._prefetch(batches)

    def _prefetch(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        coming: tuple[Batch, Any] | None = None
        for batch in batches:
            arrived, coming = coming, self._begin(batch)
            if arrived is not None:
                yield self._receive(*arrived)
        if coming is not None:
            yield self._receive(*coming)

    def move(self, data: Any) -> Any:
        """Return data on the device; what is there already is not copied."""
        return tree_map(self._copy, data)

    def _begin(self, batch: Batch) -> tuple[Batch, Any]:
        """Begin the copy of a batch; return it with the event after which it is there, None if it needs none."""
        module = torch.get_device_module(self.device)
        kind = getattr(module, "Stream", None)
        if not (isinstance(kind, type) and issubclass(kind, torch.Stream)):  # what record_stream takes
            return self.move(batch), None
        if self._stream is None:
            self._stream = kind(device=self.device)
        with module.stream(self._stream):
            return self.move(batch), self._stream.record_event()

    def _receive(self, batch: Batch, copied: Any) -> Batch:
        """Let the device compute with a batch once it is there, and reuse its memory only after that."""
        if copied is None:
            return batch
        computing = torch.get_device_module(self.device).current_stream(self.device)
        computing.wait_event(copied)
        tree_map(lambda leaf: leaf.record_stream(computing) if self._is_here(leaf) else None, batch)
        return batch

    def _copy(self, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        is_free = leaf.is_cpu and (self.non_blocking or leaf.is_pinned())
        return leaf.to(self.device, non_blocking=is_free)

    def _is_here(self, leaf: Any) -> bool:
        return isinstance(leaf, Tensor) and leaf.device.type == self.device.type
