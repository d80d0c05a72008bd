"""Streams, whose rows can only be read in order: which process reads which rows, and the position in a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.data import IterableDataset

from ...core.notices import note_once
from ..bad_rows import SkippingCollator
from ..row_types import BadRow, PaddingRow
from ..samplers.base import announce_epoch

Collate = Callable[[list[Any]], Any]


class CountedBatch(NamedTuple):
    """A batch, and how many of its rows count."""

    batch: Any
    real_rows: int


class RankStream(IterableDataset[Any]):
    """One process's rows of a stream: of every `world_size * batch_size` rows, process r keeps the r-th `batch_size`.

    All processes yield equally many batches: a process that has no rows left at the end gets a padding batch.
    """

    def __init__(self, all_rows: Any, batch_size: int, rank: int, world_size: int, *, drop_last: bool) -> None:
        self.all_rows = all_rows
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[Any]:
        rows, size = iter(self.all_rows), self.batch_size * self.world_size
        while batch := list(islice(rows, size)):
            if len(batch) < size and self.drop_last:
                return
            yield from self.select_share(batch) or [PaddingRow(batch[0])]

    def select_share(self, batch: list[Any]) -> list[Any]:
        """Return this process's rows of a batch of all processes."""
        return batch[self.rank * self.batch_size : (self.rank + 1) * self.batch_size]

    def __len__(self) -> int:
        total, size = len(self.all_rows), self.batch_size * self.world_size
        whole, left = divmod(total, size)
        own = max(1, min(self.batch_size, left - self.rank * self.batch_size)) if left and not self.drop_last else 0
        return whole * self.batch_size + own

    def set_epoch(self, epoch: int) -> None:
        announce_epoch(self.all_rows, epoch)


class PlainStream(IterableDataset[Any]):
    """A wrapper that gives any iterable the type by which torch recognises a stream."""

    def __init__(self, all_rows: Any) -> None:
        self.all_rows = all_rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.all_rows)

    def __len__(self) -> int:
        return len(self.all_rows)

    def set_epoch(self, epoch: int) -> None:
        announce_epoch(self.all_rows, epoch)


def unwrap_stream(stream: Any) -> Any:
    """Return the stream that the user passed, of which this process reads its share."""
    return stream.all_rows if isinstance(stream, (RankStream, PlainStream)) else stream


class CountingCollator:
    """Collate, and count the rows that are not for padding."""

    def __init__(self, data_collator: Collate) -> None:
        self.data_collator = data_collator

    def __call__(self, rows: list[Any]) -> CountedBatch:
        real = sum(not isinstance(row, (PaddingRow, BadRow)) for row in rows)
        return CountedBatch(self.data_collator(self.prepare_rows(rows)), real)

    def prepare_rows(self, rows: list[Any]) -> list[Any]:
        """Return the rows as the inner collator receives them."""
        if isinstance(self.data_collator, SkippingCollator):  # it distinguishes them itself
            return rows
        return [row.row if isinstance(row, PaddingRow) else row for row in rows]


# The position in a stream --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamPosition:
    """The position in a stream, as a checkpoint holds it.

    `row` rows had been read when the stream returned `state`. Where rows are sorted window by window, it is the start
    of the current window, which has `rows` rows in groups of `group`.
    """

    row: int
    state: Any = None
    rows: int = 0
    group: int = 0

    @classmethod
    def of(cls, saved: Any, row: int) -> StreamPosition:
        """Return a position from a checkpoint; older checkpoints hold only the state, at row `row`."""
        if saved is None:
            return cls(0)
        return cls(**saved) if isinstance(saved, dict) and set(saved) == set(vars(cls(0))) else cls(row, saved)


def can_resume(stream: Any) -> bool:
    """Return whether a stream can report its exact position and be set to it again."""
    stream = unwrap_stream(stream)
    has = callable(getattr(stream, "state_dict", None)) and callable(getattr(stream, "load_state_dict", None))
    return has and not has_shuffle_buffer(stream)


def has_shuffle_buffer(stream: Any) -> bool:
    """Return whether a stream of `datasets` keeps rows in a buffer to draw from.

    Its documentation says that its state_dict loses them. Neither the state nor the stream reports a buffer, so the
    parts of the stream are searched for one.
    """
    found, known = [stream], set()
    while found:
        part = found.pop()
        if id(part) in known or not type(part).__module__.startswith("datasets."):
            continue
        known.add(id(part))
        inside = getattr(part, "__dict__", {})
        if isinstance(size := inside.get("buffer_size"), int) and size > 1:
            return True
        for value in inside.values():
            found.extend(value if isinstance(value, (list, tuple)) else [value])
    return False


def keep_if_plain(state: Any) -> Any:
    """Return a state if a checkpoint can hold it; None otherwise."""
    if state is None or _is_plain(state):
        return state
    note_once(
        "the state_dict of the training stream holds objects that cannot be saved: a resumed run will read the stream "
        "from its start up to the saved position"
    )
    return None


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, (str, int)) and _is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, int, float, bool, Tensor))
