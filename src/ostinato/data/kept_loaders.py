"""Loaders of evaluation sets that are kept, with their workers, from one evaluation to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from ..arguments.settings import LoaderSettings
from .loader import Loader


@dataclass(frozen=True)
class LoaderOrigin:
    """The objects and values that a loader is built from."""

    dataset: Any
    collator: Any
    batch_size: int
    settings: LoaderSettings
    columns: tuple[str, ...] | None  # of the model; None: all columns are kept

    def is_same(self, other: LoaderOrigin) -> bool:
        """Return whether both are the same objects and equal values."""
        return (
            self.dataset is other.dataset
            and self.collator is other.collator
            and (self.batch_size, self.settings, self.columns) == (other.batch_size, other.settings, other.columns)
        )


def keep_loader(
    kept: dict[str, DataLoader[Any]], key: str, origin: LoaderOrigin, build: Callable[[], DataLoader[Any]]
) -> DataLoader[Any]:
    """Return the loader that is kept under a key; build another one if it has another origin."""
    found = kept.get(key)
    if isinstance(found, Loader) and found.origin is not None and found.origin.is_same(origin):
        return found
    loader = build()
    if isinstance(loader, Loader):
        loader.origin = origin
        kept[key] = loader
    return loader
