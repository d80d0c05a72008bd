"""Masked frames of speech, and the other frames that a masked one has to be distinguished from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IGNORE_INDEX = -100


def draw_mask(frames: int, share: float, length: int, numbers: Any) -> NDArray[np.bool_]:
    """Return which frames of a recording are masked: spans of `length` frames, at least one, at random places.

    Spans may overlap, so that a little less than `share` of the frames is masked.

    Args:
        frames: The number of frames.
        share: Of frames that spans cover, if they do not overlap.
        length: The length of a span.
        numbers: `numpy.random`, or a `RandomState`.

    >>> draw_mask(10, 0.2, 4, np.random.RandomState(0)).sum()
    np.int64(4)
    """
    length = min(length, frames)
    spans = max(1, int(share * frames / length + numbers.random_sample()))
    spans = min(spans, frames - length + 1)
    starts = numbers.choice(frames - length + 1, spans, replace=False)
    mask = np.zeros(frames, bool)
    mask[starts[:, None] + np.arange(length)] = True
    return mask


def draw_negatives(mask: NDArray[np.bool_], count: int, numbers: Any) -> NDArray[np.int64]:
    """Return, for each masked frame, other masked frames of the recording; zeros for frames that are not masked.

    >>> draw_negatives(np.array([False, True, True]), 2, np.random.RandomState(0)).tolist()
    [[0, 0], [2, 2], [1, 1]]
    """
    places = np.flatnonzero(mask)
    negatives = np.zeros((len(mask), count), np.int64)
    if len(places) > 1:
        drawn = numbers.randint(0, len(places) - 1, (len(places), count))
        drawn += drawn >= np.arange(len(places))[:, None]  # any but itself
        negatives[places] = places[drawn]
    return negatives


class MaskedCollator:
    """Pad recordings, their masks and negatives. Labels are the masked frames, so that these are what is counted."""

    def __init__(self, feature_extractor: Any) -> None:
        self.feature_extractor = feature_extractor

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        inputs = [{name: value for name, value in row.items() if name not in ("mask", "negatives")} for row in rows]
        batch = dict(self.feature_extractor.pad(inputs, padding=True, return_tensors="pt"))
        width = max(len(row["mask"]) for row in rows)
        mask = torch.zeros(len(rows), width, dtype=torch.bool)
        negatives = torch.zeros(len(rows), width, rows[0]["negatives"].shape[1], dtype=torch.long)
        for number, row in enumerate(rows):
            frames = len(row["mask"])
            mask[number, :frames] = torch.from_numpy(row["mask"])
            negatives[number, :frames] = torch.from_numpy(row["negatives"]) + number * width  # in the whole batch
        batch["mask_time_indices"], batch["sampled_negative_indices"] = mask, negatives
        batch["labels"] = torch.where(mask, 1, IGNORE_INDEX)
        batch["frame_counts"] = torch.tensor([len(row["mask"]) for row in rows])
        return batch
