"""What fails while rows are read: on its way out of a worker, and told by the rows it is about.

What fails in a worker comes back as a value, and is raised in the main process as what it is: the same type, the same
attributes, with a note that names the row. (torch would make a new exception of the traceback's text.)
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
from .dataset_errors import Rows
from .mixture import Mixture
from .mixture_loss import SourceCollator
from .streams.shards import CountingCollator


class WorkerTraceback(Exception):
    """Where in a worker the exception below was raised, as text: tracebacks do not travel."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True)
class Failure:
    """An exception on its way from a worker, through the queue that batches come through."""

    error: Exception
    notes: tuple[str, ...]
    text: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Pack an exception; one that cannot travel is raised, and torch does with it what it can."""
        try:
            # As the queue does it. (Its `loads` is no method, whatever type checkers make of it.)
            same = type(ForkingPickler.loads(ForkingPickler.dumps(error))) is type(error)  # type: ignore[attr-defined]
        except Exception:
            same = False
        if not same:
            raise error
        origin = error.__cause__ if isinstance(error.__cause__, Exception) else error
        text = "".join(traceback.format_exception(type(origin), origin, origin.__traceback__))
        return cls(error, tuple(getattr(error, "__notes__", ())), text)

    def reraise(self) -> NoReturn:
        """Raise it here."""
        for note in self.notes:
            add_note(self.error, note)
        raise self.error from WorkerTraceback(self.text)


def unpacked(batches: Any) -> Iterator[Any]:
    """The batches of a loader over a reader; a failure among them is raised."""
    for batch in batches:
        if isinstance(batch, Failure):
            batch.reraise()
        yield batch


# Which row ----------------------------------------------------------------------------------------------------------


def reading_failed(error: Exception, dataset: Any, indices: Sequence[int], source: str) -> NoReturn:
    """Say which row could not be read, or which rows where they are read together."""
    worker = get_worker_info()
    dataset_errors.reading_failed(
        error, Rows(source, indices), dataset, by="" if worker is None else f" by worker {worker.id}"
    )


def joining_failed(error: Exception, collate: Any, found: list[Any], rows: Rows, dataset: Any) -> NoReturn:
    """Say why rows could not be joined; of a mixture also in which columns its sets differ."""
    if not isinstance(dataset, Mixture):
        collating_failed(error, collate, found, rows)
    try:
        collating_failed(error, collate, found, _in_their_set(rows, collate, dataset))
    except Exception as told:
        dataset.note_columns(told)
        raise


def _in_their_set(rows: Rows, collate: Any, mixture: Mixture) -> Rows:
    """Rows of a mixture by their numbers in the set that they come from."""
    by_set = collate.data_collator if isinstance(collate, SkippingCollator) else collate
    failed = by_set.failed if isinstance(by_set, SourceCollator) else None
    if failed is None or rows.numbers is None:
        return rows
    numbers, name = [mixture.locate(number)[1] for number in rows.numbers], failed[0]
    table = has_columns(mixture.sets[name])
    return replace(rows, source=f"set {name!r} of the mixture", numbers=numbers, table=table)


def _of_one_set(collate: SourceCollator, found: list[Any], rows: Rows, error: Exception) -> tuple[list[Any], Rows]:
    """The rows that the collator inside got: those of one set. Our own collators know their places in the batch."""
    seen = collate.seen(found)
    if collate.failed is None or isinstance(error, dataset_errors.RowsError):
        return seen, rows
    places = collate.failed[1]
    numbers = rows.numbers and [rows.numbers[place] for place in places]
    return [seen[place] for place in places], replace(rows, numbers=numbers)


def collating_failed(error: Exception, collate: Any, found: list[Any], rows: Rows) -> NoReturn:
    """Say why rows could not be joined, of the rows that the innermost collator got."""
    while True:
        if isinstance(collate, SplitCollator):
            pass  # it has tried the rows uncut
        elif isinstance(collate, SkippingCollator):
            numbers = None if rows.numbers is None else [rows.numbers[place] for place in collate.kept(found)]
            found, rows = collate.seen(found), replace(rows, numbers=numbers)
            if not found:  # it was a stand-in
                raise error
        elif isinstance(collate, SourceCollator):
            found, rows = _of_one_set(collate, found, rows, error)
        elif isinstance(collate, CountingCollator):
            found = collate.seen(found)
        elif isinstance(collate, RemoveColumnsCollator):
            found = collate.seen(found)
            rows = replace(rows, columns=collate.signature_columns)
        else:
            collate_errors.collating_failed(error, collate, found, rows)
        collate = collate.data_collator
