"""Image segmentation: intersection over union."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ..core.errors import MetricError
from ..core.notices import note_once
from ..core.tree import numpify
from .base import IGNORE_INDEX, Arrays, Measured, Metric
from .inputs import argmax, find_counted, get_first_output, read_array, read_class_labels

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Options


class MeanIoU(Metric):
    """The mean over classes of intersection by union of predicted and true pixels, and two accuracies.

    Predictions are logits `(images, classes, height, width)` or class ids `(images, height, width)`; labels `(images,
    height, width)`. Logits of another size are scaled to the labels' (bilinear), image by image, which is reported
    once. Pixels labelled -100 or `ignore_index` are left out (pass 255 where that means "no label"). Classes that are
    neither there nor predicted do not count. Keeps three counts per class; for an interval, per class and image.

    Args:
        class_names: the name of every class, a list or `model.config.id2label`: also give `iou_{name}` and
            `accuracy_{name}` of each class that occurs.

    >>> MeanIoU()((np.array([[[0, 1], [1, 1]]]), np.array([[[0, 0], [1, 1]]])))
    {'mean_iou': 0.5833333333333333, 'mean_accuracy': 0.75, 'overall_accuracy': 0.75}
    """

    default_name = "mean_iou"
    grows = True

    def __init__(
        self, *, class_names: Sequence[str] | Mapping[Any, str] | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(**options)
        if isinstance(class_names, Mapping):
            class_names = [name for _, name in sorted((int(number), name) for number, name in class_names.items())]
        self.class_names = class_names

    @property
    def names_more(self) -> bool:
        """Whether results have further names, those of the classes that occur."""
        return self.class_names is not None

    def _list_names(self) -> tuple[str, ...]:
        return (self.name, "mean_accuracy", "overall_accuracy")

    def _measure(self, predictions: Any, references: Any) -> Measured:
        labels = read_class_labels(references, self.name)
        given = get_first_output(predictions, self.name)
        given = given if isinstance(given, Tensor) else read_array(given, self.name, "predictions")
        self._check_shapes(tuple(given.shape), labels.shape)
        found = [np.zeros((0, 5), dtype=np.int64)]
        for row, (image, truth) in enumerate(zip(given, labels, strict=True)):
            mask = find_counted(truth, self.ignore_index) & (truth != IGNORE_INDEX)
            guess = self._read_predicted_classes(image, truth.shape)[mask]
            found.append(_count_pixels(row, guess, self._check_labels(truth[mask], image)))
        table = np.concatenate(found)
        return Measured(len(labels), table[:, 0], {"class": table[:, 1], "counts": table[:, 2:]})

    def _check_shapes(self, predictions: tuple[int, ...], labels: tuple[int, ...]) -> None:
        as_logits = len(predictions) == 4 and len(labels) == 3 and predictions[0] == labels[0]
        if not as_logits and (predictions != labels or len(labels) != 3):
            raise MetricError(
                what=f"{self.name}: predictions {predictions} do not fit labels {labels}",
                why="it takes logits (images, classes, height, width) or ids and labels (images, height, width)",
                fix="pass the model's logits, or scale predictions to the size of the labels",
            )

    def _read_predicted_classes(self, image: Any, size: tuple[int, ...]) -> np.ndarray:
        if len(image.shape) == 2:
            return np.asarray(numpify(image)).astype(np.int64)
        if tuple(image.shape[1:]) != size:
            shape = tuple(image.shape[1:])
            note_once(f"{self.name}: logits of {shape} are scaled to the labels' {size}", key=f"{self.name}.scaled")
            image = image if isinstance(image, Tensor) else torch.from_numpy(np.array(image))
            image = interpolate(image[None].float(), size=size, mode="bilinear", align_corners=False)[0]
        return argmax(image, 0, self.name)

    def _check_labels(self, truth: np.ndarray, image: Any) -> np.ndarray:
        classes = image.shape[0] if len(image.shape) == 3 else None
        high = int(truth.max()) if truth.size else 0
        if (truth.size and truth.min() < 0) or (classes is not None and high >= classes):
            bad = high if classes is not None and high >= classes else int(truth.min())
            raise MetricError(
                what=f"{self.name}: label {bad} is not among {classes if classes is not None else 'the'} classes",
                why="classes count from 0; pixels without a label need a number that is ignored",
                fix=f"ignore_index={bad}, if that means no label",
            )
        return truth

    def _total(self, values: Arrays, weights: np.ndarray | None) -> Arrays:
        counts = values["counts"] if weights is None else values["counts"] * weights[:, None]
        return {"counts": np.stack([np.bincount(values["class"], column) for column in counts.T], axis=1)}

    def _score(self, totals: Arrays) -> dict[str, float]:
        both, predicted, present = totals["counts"].T
        union = predicted + present - both
        scores = {
            self.name: float((both[union > 0] / union[union > 0]).mean()),
            "mean_accuracy": float((both[present > 0] / present[present > 0]).mean()),
            "overall_accuracy": float(both.sum() / present.sum()),
        }
        for number, name in enumerate((self.class_names or ())[: len(union)]):
            if union[number] > 0:
                scores[f"iou_{name}"] = float(both[number] / union[number])
            if present[number] > 0:
                scores[f"accuracy_{name}"] = float(both[number] / present[number])
        return scores


def _count_pixels(row: int, guess: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return a line per class that occurs: row, class, pixels in both, predicted, present."""
    if not truth.size:
        return np.zeros((0, 5), dtype=np.int64)
    size = 1 + max(int(guess.max()), int(truth.max()))
    both, predicted, present = (np.bincount(ids, minlength=size) for ids in (truth[truth == guess], guess, truth))
    kinds = np.flatnonzero(predicted + present)
    return np.stack([np.full(len(kinds), row), kinds, both[kinds], predicted[kinds], present[kinds]], axis=1)
