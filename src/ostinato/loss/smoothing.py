"""Label smoothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.errors import TensorTypeError
from ..core.notices import note_once

_NOT_CLASSES = (torch.bool, torch.complex64, torch.complex128)


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
        if labels.is_floating_point() or labels.dtype in _NOT_CLASSES:
            raise _not_class_numbers(labels)
        logits = model_output["logits"] if isinstance(model_output, Mapping) else model_output[0]
        if shift_labels:
            logits, labels = logits[..., :-1, :], labels[..., 1:]
        surprise = -torch.nn.functional.log_softmax(logits, dim=-1)
        targets = labels.unsqueeze(-1) if labels.dim() == surprise.dim() - 1 else labels
        ignored = targets.eq(self.ignore_index)
        # Ignored positions need a valid class; what they gather is zeroed below.
        own = surprise.gather(dim=-1, index=targets.long().clamp(min=0)).masked_fill(ignored, 0.0).sum()
        # Sums over a whole vocabulary do not fit into float16.
        everyone = surprise.sum(dim=-1, keepdim=True, dtype=torch.float32).masked_fill(ignored, 0.0).sum()
        count = num_items_in_batch if num_items_in_batch is not None else ignored.numel() - ignored.long().sum()
        return (1 - self.epsilon) * (own / count) + self.epsilon * (everyone / (count * surprise.shape[-1]))


def build_smoother(epsilon: float, model: Any) -> LabelSmoother | None:
    """Return the smoother of `label_smoothing_factor`; None if it is zero, or if a row may have several labels."""
    if not epsilon:
        return None
    config = getattr(model, "config", None)
    if getattr(config, "problem_type", None) == "multi_label_classification":
        note_once(
            f"label_smoothing_factor={epsilon:g} has no effect: problem_type is multi_label_classification, and "
            "smoothing spreads the target of one class over the others"
        )
        return None
    return LabelSmoother(epsilon=epsilon)


def _not_class_numbers(labels: Tensor) -> TensorTypeError:
    return TensorTypeError(
        what=f"label smoothing cannot be applied to labels of type {str(labels.dtype).removeprefix('torch.')}",
        why="it spreads the target of one class over the others, so a label has to be the number of a class",
        fix="set label_smoothing_factor=0; for several labels in a row also config.problem_type = "
        "'multi_label_classification'",
    )
