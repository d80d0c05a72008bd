"""Batches of recordings: inputs padded by the feature extractor, labels by -100."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

IGNORE_INDEX = -100


class AudioCollator:
    """Pad recordings to the longest of the batch; labels that are lists are padded with -100.

    `drop_first` names a token that the model adds to labels itself: if all labels begin with it, it is removed.
    """

    def __init__(self, feature_extractor: Any, *, drop_first: int | None = None) -> None:
        self.feature_extractor, self.drop_first = feature_extractor, drop_first

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        inputs = [{name: value for name, value in row.items() if name != "labels"} for row in rows]
        batch = dict(self.feature_extractor.pad(inputs, padding=True, return_tensors="pt"))
        if "labels" in rows[0]:
            batch["labels"] = self._join_labels([torch.as_tensor(row["labels"]) for row in rows])
        return batch

    def _join_labels(self, labels: Sequence[Tensor]) -> Tensor:
        if labels[0].dim() == 0:
            return torch.stack(list(labels))
        if self.drop_first is not None and all(len(one) and one[0] == self.drop_first for one in labels):
            labels = [one[1:] for one in labels]
        return torch.nn.utils.rnn.pad_sequence(list(labels), batch_first=True, padding_value=IGNORE_INDEX)
