"""Loaders that a subclass passes to `accelerator.prepare`: they are ordered by epoch, and their batches sharded."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, RandomSampler

from ..arguments.settings import LoaderSettings
from ..core.errors import NotSupportedError
from ..data.loader import Loader
from ..data.samplers.epoch_sampler import EpochSampler
from ..data.user_loaders import RoundRobinBatchSampler, is_sharded, share_batch_sampler


def shard_loader(loader: DataLoader[Any], settings: LoaderSettings) -> DataLoader[Any]:
    """Return a loader whose batches are divided among processes; one that is already sharded is returned unchanged."""
    _order_by_epochs(loader, settings)
    if settings.world_size == 1 or isinstance(loader, Loader) or _is_sharded(loader):
        return loader
    if loader.batch_sampler is None:
        raise NotSupportedError(
            what="this loader cannot be sharded among processes",
            why="its data set is a stream, or returns whole batches, so that each process would read all of it",
            fix="pass the data set to the Trainer as train_dataset, which shards its rows",
        )
    return DataLoader(
        loader.dataset,
        batch_sampler=share_batch_sampler(loader.batch_sampler, settings),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )


def _order_by_epochs(loader: DataLoader[Any], settings: LoaderSettings) -> None:
    """Replace a plain random order by that of `Trainer`, which depends on seed and epoch alone."""
    batches: Any = loader.batch_sampler
    sampler = getattr(batches, "sampler", None)
    if type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source):
        batches.sampler = EpochSampler(len(sampler), settings.seed)


def _is_sharded(loader: DataLoader[Any]) -> bool:
    parts = (loader.sampler, loader.batch_sampler)
    return isinstance(loader.batch_sampler, RoundRobinBatchSampler) or any(map(is_sharded, parts))
