"""A data set whose rows are read, decoded and augmented when they are needed, by workers if there are any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data import Dataset

from ostinato import DataError

from ..rows import Split


class MediaRows(Dataset[dict[str, Any]]):
    """The rows of a split, each read on access: `read` makes the model's input of a row of the table.

    `read` may draw random numbers from Python's, numpy's and torch's generators. In training they are the row's own
    (docs/data.md): equal for any number of workers, and after a run was interrupted.
    """

    def __init__(self, split: Split, read: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        self.split, self.read = split, read

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> dict[str, Any]:
        try:
            return self.read(self.split.rows[int(index)])
        except DataError as error:
            where = self.split.locate(int(index))
            raise DataError(f"{where}: {error.what}", error.why, error.fix) from error.__cause__
