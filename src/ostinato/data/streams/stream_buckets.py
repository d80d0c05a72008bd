"""Keep rows of similar length together in a stream: a window of rows is read ahead and sorted, as in `buckets`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...arguments.settings import LoaderSettings
from ...core.notices import note_once
from ..row_lengths import find_row_length
from ..row_types import BadRow
from ..samplers.buckets import FIRST_WINDOW, build_window_generator, group_rows

WINDOW = 128  # groups


@dataclass(frozen=True)
class StreamWindows:
    """The order of the rows of a stream: a function of the seed, the epoch and the start of the window."""

    group: int  # rows kept together: those of an optimizer step over all processes
    seed: int
    window: int | None = None  # groups of a window, held in memory; None: 32 at first, then 64, then 128
    input_name: str = "input_ids"
    length_column: str | None = None
    source: str = "training set"

    def count_window_rows(self, row: int) -> int:
        """Return the number of rows of the window that begins at a row.

        >>> windows = StreamWindows(group=2, seed=0)
        >>> [windows.count_window_rows(2 * group) for group in (0, 32, 96, 224, 480, 992)]
        [64, 128, 256, 256, 256, 256]
        """
        return self.group * (self.window or min(WINDOW, row // self.group + FIRST_WINDOW))

    def sort_rows(
        self, found: list[tuple[int, Any]], group: int, epoch: int, first: int, worker: int = 0
    ) -> list[tuple[int, Any]]:
        """Return the rows of a window in random order, in groups of `group` rows of similar length."""
        if not found:
            return []
        lengths = np.array([self._measure_row(number, row) for number, row in found], dtype=np.int64)
        generator = build_window_generator(self.seed, epoch, (worker << 40) + first)
        return [found[place] for place in group_rows(np.arange(len(found)), lengths, group, generator).tolist()]

    def _measure_row(self, number: int, row: Any) -> int:
        return (
            0
            if isinstance(row, BadRow)
            else find_row_length(row, number, self.input_name, self.length_column, self.source)
        )


def build_stream_windows(settings: LoaderSettings, *, group: int, input_name: str) -> StreamWindows | None:
    """Return the order of a training stream that `train_sampling_strategy` selects; None: its own."""
    if settings.sampling == "group_by_length" and settings.by_windows:
        seed = torch.initial_seed() if settings.seed is None else settings.seed
        return StreamWindows(group * settings.world_size, seed, settings.window, input_name, settings.length_column)
    if settings.sampling != "random":
        windows = "; length_window=-1 sorts it window by window" if "length" in settings.sampling else ""
        note_once(
            f"train_sampling_strategy={settings.sampling!r} has no effect: the training set is an iterable, which has "
            f"its own order{windows}"
        )
    return None
