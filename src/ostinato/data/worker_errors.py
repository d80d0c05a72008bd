"""Errors while rows are read: passed from a worker to the main process, with the rows that they concern.

An exception in a worker is returned as a value and raised in the main process unchanged: the same type, the same
attributes, with a note that names the row. (torch would make a new exception from the text of the traceback.)
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

from torch.utils.data import get_worker_info

from ..core.errors import add_note
from . import collate_errors, dataset_errors
from .bad_rows import SkippingCollator
from .batching.split_by_length import SplitCollator
from .columns import RemoveColumnsCollator, has_columns
from .dataset_errors import RowNames
from .mixture import Mixture
from .mixture_loss import SourceCollator
from .streams.shards import CountingCollator


class WorkerTraceback(Exception):
    """The place in a worker where the exception below was raised, as text: tracebacks cannot be pickled."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True)
class WorkerFailure:
    """An exception from a worker, sent through the queue of batches."""

    error: Exception
    notes: tuple[str, ...]
    text: str

    @classmethod
    def of(cls, error: Exception) -> WorkerFailure:
        """Wrap an exception. Raise it if it cannot be pickled; torch then handles it."""
        try:
            # As the queue does it. (`loads` is not a method, although type checkers assume so.)
            same = type(ForkingPickler.loads(ForkingPickler.dumps(error))) is type(error)  # type: ignore[attr-defined]
        except Exception:
            same = False
        if not same:
            raise error
        origin = error.__cause__ if isinstance(error.__cause__, Exception) else error
        text = "".join(traceback.format_exception(type(origin), origin, origin.__traceback__))
        return cls(error, tuple(getattr(error, "__notes__", ())), text)

    def reraise(self) -> NoReturn:
        """Raise the exception in this process."""
        for note in self.notes:
            add_note(self.error, note)
        raise self.error from WorkerTraceback(self.text)


def unpack_batches(batches: Any) -> Iterator[Any]:
    """Yield the batches of a loader over a reader; raise a failure among them."""
    for batch in batches:
        if isinstance(batch, WorkerFailure):
            batch.reraise()
        yield batch


# Which row -----------------------------------------------------------------------------------------------------------


def raise_read_error(error: Exception, dataset: Any, indices: Sequence[int], source: str) -> NoReturn:
    """Raise with the row that could not be read, or with the rows where they are read together."""
    worker = get_worker_info()
    dataset_errors.raise_read_error(
        error, RowNames(source, indices), dataset, by="" if worker is None else f" by worker {worker.id}"
    )


def raise_collate_error(error: Exception, collate: Any, found: list[Any], rows: RowNames, dataset: Any) -> NoReturn:
    """Raise with the reason why rows could not be collated; for a mixture also with the columns that differ."""
    if not isinstance(dataset, Mixture):
        raise_inner_collate_error(error, collate, found, rows)
    try:
        raise_inner_collate_error(error, collate, found, _number_rows_in_set(rows, collate, dataset))
    except Exception as raised:
        dataset.note_columns(raised)
        raise


def _number_rows_in_set(rows: RowNames, collate: Any, mixture: Mixture) -> RowNames:
    """Return the rows of a mixture with their numbers in the set that they come from."""
    by_set = collate.data_collator if isinstance(collate, SkippingCollator) else collate
    failed = by_set.failed if isinstance(by_set, SourceCollator) else None
    if failed is None or rows.numbers is None:
        return rows
    numbers, name = [mixture.locate(number)[1] for number in rows.numbers], failed[0]
    table = has_columns(mixture.sets[name])
    return replace(rows, source=f"set {name!r} of the mixture", numbers=numbers, table=table)


def _select_set_rows(
    collate: SourceCollator, found: list[Any], rows: RowNames, error: Exception
) -> tuple[list[Any], RowNames]:
    """Return the rows that the inner collator received: those of one set. Our collators know their batch positions."""
    seen = collate.prepare_rows(found)
    if collate.failed is None or isinstance(error, dataset_errors.RowsError):
        return seen, rows
    places = collate.failed[1]
    numbers = rows.numbers and [rows.numbers[place] for place in places]
    return [seen[place] for place in places], replace(rows, numbers=numbers)


def raise_inner_collate_error(error: Exception, collate: Any, found: list[Any], rows: RowNames) -> NoReturn:
    """Raise with the reason why rows could not be collated, for the rows that the innermost collator received."""
    while True:
        if isinstance(collate, SplitCollator):
            pass  # it has tried the rows without splitting
        elif isinstance(collate, SkippingCollator):
            numbers = (
                None if rows.numbers is None else [rows.numbers[place] for place in collate.select_positions(found)]
            )
            found, rows = collate.prepare_rows(found), replace(rows, numbers=numbers)
            if not found:  # it was a padding batch
                raise error
        elif isinstance(collate, SourceCollator):
            found, rows = _select_set_rows(collate, found, rows, error)
        elif isinstance(collate, CountingCollator):
            found = collate.prepare_rows(found)
        elif isinstance(collate, RemoveColumnsCollator):
            found = collate.prepare_rows(found)
            rows = replace(rows, columns=collate.signature_columns)
        else:
            collate_errors.raise_collator_error(error, collate, found, rows)
        collate = collate.data_collator
