"""Batches without rows: an error if they are the first of a run, otherwise left out and reported once."""

from __future__ import annotations

from typing import Any

from ..core.errors import DataError
from ..core.notices import note_once
from ..core.protocols import Batch
from .dataset_errors import build_empty_batch_error
from .epoch_position import find_batch_rows


def report_empty_batch(loader: Any, data: str, batch: Batch, epoch: int, number: int) -> None:
    """Report once that a batch has no rows and is not counted.

    Raises:
        DataError: The batch has no columns either. transformers refuses it too.
    """
    error = describe_empty_batch(loader, data, batch, epoch, number)
    if not batch:
        raise error
    note_once(f"{error.what}; {error.why}. It is skipped; later ones are not reported", key=f"no rows, {data}")


def describe_empty_batch(loader: Any, data: str, batch: Batch, epoch: int, number: int) -> DataError:
    """Return the error for a batch without rows, with the rows it was made of."""
    return build_empty_batch_error(batch, data, number, find_batch_rows(loader, epoch, range(number, number + 1)))
