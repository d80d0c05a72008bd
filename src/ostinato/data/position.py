"""A place inside an epoch: which rows it stands for, and how to start there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import Sampler, SequentialSampler

from ..core.notices import note_once
from .loaders import Loader, Replay
from .samplers import EpochSampler, LengthGroupedSampler, announce_epoch
from .sizes import is_iterable


class RestOfEpoch(Sampler[list[int]]):
    """The batches of an epoch from number `skip` on; those before are not read."""

    def __init__(self, batches: Any, skip: int) -> None:
        self.batches, self.skip = batches, skip

    def __iter__(self) -> Iterator[list[int]]:
        return islice(iter(self.batches), self.skip, None)

    def __len__(self) -> int:
        return max(len(self.batches) - self.skip, 0)

    def set_epoch(self, epoch: int) -> None:
        announce_epoch(self.batches, epoch)
        announce_epoch(getattr(self.batches, "sampler", None), epoch)


def skip_batches(loader: Any, count: int, replay: Replay | None = None) -> Iterable[Any]:
    """The loader's present epoch without its first `count` batches. Rows that can be addressed are not read."""
    if not isinstance(loader, Loader) or is_iterable(loader.dataset):
        note_once(
            f"reading and dropping {count} batches to come back to where training stood: a stream has no addresses"
        )
        return islice(iter(loader), count, None)
    rest = Loader(
        loader.dataset,
        training=loader.training,
        batch_sampler=RestOfEpoch(loader.batch_sampler, count),
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
        multiprocessing_context=loader.multiprocessing_context,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
    )
    rest.set_epoch(loader.epoch)
    rest.replay = replay
    return rest


def rows_of(loader: Any, epoch: int, batches: range) -> list[int] | None:
    """The data-set indices of some batches of an epoch, by arithmetic; None where the order is not ours to know."""
    if not isinstance(loader, Loader) or is_iterable(loader.dataset):
        return None
    sampler = getattr(loader.batch_sampler, "sampler", None)
    repeats = isinstance(sampler, (EpochSampler, SequentialSampler)) or (
        isinstance(sampler, LengthGroupedSampler) and sampler.seed is not None
    )
    if not repeats:
        return None
    announce_epoch(sampler, epoch)
    chosen = islice(iter(loader.batch_sampler), batches.start, batches.stop)  # type: ignore[arg-type]
    return [row for batch in chosen for row in batch]


def real_rows_of(loader: Any) -> Callable[[int], int | None]:
    """How many rows of batch k count in this process; None: all that it holds."""
    return getattr(loader, "real_rows", None) or _all


def _all(batch_number: int) -> None:
    return None
