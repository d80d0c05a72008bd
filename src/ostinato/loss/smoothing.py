"""Label smoothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class LabelSmoother:
    """Cross entropy with smoothed labels: `epsilon` of the target is spread evenly over all classes.

    Args:
        epsilon: the part of the target that is spread over all classes.
        ignore_index: the label of positions that do not count.

    >>> loss = LabelSmoother(epsilon=0.1)({"logits": torch.zeros(2, 3)}, torch.tensor([0, 2]))
    """

    epsilon: float = 0.1
    ignore_index: int = -100

    def __call__(
        self,
        model_output: Any,
        labels: Tensor,
        shift_labels: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        logits = model_output["logits"] if isinstance(model_output, Mapping) else model_output[0]
        if shift_labels:
            logits, labels = logits[..., :-1, :], labels[..., 1:]
        surprise = -torch.nn.functional.log_softmax(logits, dim=-1)
        targets = labels.unsqueeze(-1) if labels.dim() == surprise.dim() - 1 else labels
        ignored = targets.eq(self.ignore_index)
        # Ignored positions need a valid class; what they gather is zeroed below.
        own = surprise.gather(dim=-1, index=targets.clamp(min=0)).masked_fill(ignored, 0.0).sum()
        # Sums over a whole vocabulary do not fit into float16.
        everyone = surprise.sum(dim=-1, keepdim=True, dtype=torch.float32).masked_fill(ignored, 0.0).sum()
        count = num_items_in_batch if num_items_in_batch is not None else ignored.numel() - ignored.long().sum()
        return (1 - self.epsilon) * (own / count) + self.epsilon * (everyone / (count * surprise.shape[-1]))
