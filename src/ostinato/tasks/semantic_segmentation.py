"""Semantic segmentation: a class for each pixel of an image, learned from masks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ostinato import DataError
from ostinato.logging import get_logger
from ostinato.metrics import metric

from .label_names import read_label_names
from .media.gallery import Picture, write_gallery
from .media.image_augmentation import apply_crop
from .media.image_recipe import ImageArguments, ImageRecipe
from .media.images import import_pillow
from .media.masks import (
    IGNORED,
    MaskReader,
    check_mask,
    decode_mask,
    draw_mask_over,
    name_masks,
    place_side_by_side,
    reduce_labels,
    resize_mask,
    save_mask,
    wrap_mask,
)
from .media.media_files import MediaFile
from .media.media_reader import check_files
from .rows import TEST, TRAIN, Split, format_names
from .task_arguments import flag

_SHOWN_PICTURES, _SHOWN_LINES = 12, 3
_INSPECTED_MASKS = 100  # where the labels are known


@dataclass
class SegmentationArguments(ImageArguments):
    """The masks, and their labels."""

    label_column_name: str | None = flag(None, "The column with the masks, if not 'label', 'mask' or 'annotation'.")
    id2label: str | None = flag(
        None, "A JSON file with the labels: a list of names, or an object from numbers to names."
    )
    do_reduce_labels: bool = flag(
        False,
        "0 in a mask means no label; the labels from 1 on are numbered from 0.",
        aliases=["--reduce_labels"],
    )
    crop_scale: float = flag(0.25, "The smallest share of an image's area that a random crop keeps.")


class SemanticSegmentation(ImageRecipe):
    """Recipe that predicts a class for every pixel. A `transform` gets the image and its mask, and returns both."""

    name = "semantic-segmentation"
    summary = "Segment images: a class for each pixel."
    model_class = "AutoModelForSemanticSegmentation"
    arguments_class = SegmentationArguments

    mask_column: str
    known_names: list[str] | None = None  # the labels, as soon as they are known
    predicted: list[dict[str, Any]]

    # ---- rows ------------------------------------------------------------------------------------------------

    def build_reader(self) -> MaskReader:
        return MaskReader()

    def find_columns(self, splits: Mapping[str, Split]) -> None:
        super().find_columns(splits)
        first = next(iter(splits.values()))
        usual = [name for name in ("label", "mask", "annotation", "labels") if name in first.columns]
        self.mask_column = self.arguments.label_column_name or next(iter(usual), "label")
        for split in splits.values():
            if not split.name.startswith(TEST):
                split.require([self.mask_column], {self.mask_column: "--label_column_name"})
        if self.arguments.id2label is not None:
            self.known_names = read_label_names(Path(self.arguments.id2label))

    def check_split(self, split: Split) -> None:
        super().check_split(split)
        if self.mask_column in split.columns:
            check_files(split, self.mask_column)

    def check_row(self, row: Mapping[str, Any], purpose: str) -> None:
        image = self.open_row(row, purpose)
        if row.get(self.mask_column) is not None or purpose != TEST:
            self._open_checked_mask(row, image, purpose)

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        if TRAIN not in splits:
            return
        train = splits[TRAIN]
        if self.arguments.id2label is not None:
            self._find_highest_value(train.take(_INSPECTED_MASKS))
            return
        count = 1 + self._find_highest_value(train)
        self.known_names = [str(number) for number in range(max(2, count))]
        get_logger().info(f"{train.source}: its masks have {count} labels, numbered (--id2label names them)")

    def _find_highest_value(self, split: Split) -> int:
        """Return the highest number in all masks; raise if they hold 0 and pixels without a label alone."""
        high, has_ignored = 0, False
        for row, value in enumerate(split.read_column(self.mask_column)):
            try:
                mask = self._open_mask(value, TRAIN)
            except DataError as error:
                if self.training.skip_bad_rows:
                    continue
                raise DataError(f"{split.locate(row, self.mask_column)}: {error.what}", error.why, error.fix) from None
            high = max(high, int(mask[mask != IGNORED].max(initial=0)))
            has_ignored = has_ignored or bool((mask == IGNORED).any())
        if high == 0 and has_ignored and not self.arguments.do_reduce_labels:
            raise DataError(
                what=f"{split.source}: the masks hold nothing but 0 and {IGNORED}",
                why=f"{IGNORED} means no label, so there is one label, and nothing to learn",
                fix=f"store 1 in place of {IGNORED}, if these pixels are the second label",
            )
        return high

    def prepare_config(self, config: Any) -> None:
        names = [name for _, name in sorted((int(number), name) for number, name in config.id2label.items())]
        is_trained = any("Segmentation" in name for name in config.architectures or ())
        if self.known_names is None:
            self.known_names = names
        elif self.arguments.id2label is None and is_trained and len(names) >= len(self.known_names):
            self.known_names = names  # the masks have numbers alone
        if getattr(config, "semantic_loss_ignore_index", IGNORED) != IGNORED:
            get_logger().info(f"semantic_loss_ignore_index={config.semantic_loss_ignore_index} is set to {IGNORED}")
        config.semantic_loss_ignore_index = IGNORED
        config.num_labels = len(self.class_names)
        config.id2label = dict(enumerate(self.class_names))
        config.label2id = {name: number for number, name in enumerate(self.class_names)}
        get_logger().info(f"predicts one of {len(self.class_names)} labels: {format_names(self.class_names)}")

    @property
    def class_names(self) -> list[str]:
        """The labels; known from `prepare_config` on."""
        assert self.known_names is not None
        return self.known_names

    def load_processor(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        processor = super().load_processor(arguments, splits)
        if hasattr(processor, "do_reduce_labels"):
            processor.do_reduce_labels = self.arguments.do_reduce_labels
        return processor

    # ---- features --------------------------------------------------------------------------------------------

    def _open_mask(self, value: Any, purpose: str) -> np.ndarray:
        file = MediaFile.from_value(value, self.directories[purpose])
        if file is None:
            raise DataError("no mask is named", f"the value is {str(value)[:60]!r}", "name a file, or remove the row")
        mask = decode_mask(file)
        return reduce_labels(mask) if self.arguments.do_reduce_labels else mask

    def _open_checked_mask(self, row: Mapping[str, Any], image: Any, purpose: str) -> np.ndarray:
        value = row[self.mask_column]
        mask, file = self._open_mask(value, purpose), MediaFile.from_value(value, Path())
        check_mask(mask, image.size, "the mask" if file is None else file.name, self.known_names)
        return mask

    def read_row(self, row: Mapping[str, Any], purpose: str) -> dict[str, Any]:
        image = self.open_row(row, purpose)
        value = row.get(self.mask_column)
        if value is None and purpose == TEST:
            return {"pixel_values": self.compute_pixels(image, purpose)}
        mask = self._open_checked_mask(row, image, purpose)
        if purpose == TRAIN and (transform := type(self).transform) is not None:
            picture, changed = transform(image, wrap_mask(mask))
            return _join(self.finish_pixels(picture), np.asarray(changed))
        if purpose != TRAIN or not self.augmentation.is_on:
            return _join(self.pixels.process(image), mask)
        return self._augment(image, mask)

    def _augment(self, image: Any, mask: np.ndarray) -> dict[str, Any]:
        """Return image and mask, the same part of both."""
        crop, size = self.augmentation.draw_crop(*image.size), self.pixels.size
        picture = apply_crop(image, crop, size, import_pillow().Resampling.BILINEAR)
        labels = resize_mask(mask, size, crop.box)
        labels = labels[:, ::-1].copy() if crop.is_flipped else labels
        values = self.augmentation.erase(self.pixels.convert(self.augmentation.change_colors(picture)))
        return {"pixel_values": values, "labels": torch.tensor(labels)}

    # ---- trainer ---------------------------------------------------------------------------------------------

    def get_trainer_arguments(self, splits: Mapping[str, Split], features: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "compute_metrics": metric("mean_iou", ignore_index=IGNORED, class_names=self.class_names),
            "preprocess_logits_for_metrics": self.choose_classes,
        }

    def choose_classes(self, logits: Any, labels: Tensor | None) -> Tensor:
        """Return the likeliest class of each pixel, in the size of the labels: logits are often smaller."""
        logits = logits[0] if isinstance(logits, (tuple, list)) else logits
        size = self.pixels.size if labels is None else tuple(labels.shape[-2:])
        if tuple(logits.shape[-2:]) != size:
            logits = interpolate(logits.float(), size=size, mode="bilinear", align_corners=False)
        return logits.argmax(dim=1).to(torch.int16)

    # ---- results ---------------------------------------------------------------------------------------------

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        masks = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
        self.predicted = []
        names = name_masks([self.find_file(row) for row in rows])
        for row, name, found in zip(rows, names, masks, strict=True):
            shares = np.bincount(found.reshape(-1), minlength=len(self.class_names)) / found.size
            line = {
                "image": self.find_file(row),
                "mask": f"masks/{name}",
                "shares": {self.class_names[n]: round(float(shares[n]), 4) for n in np.flatnonzero(shares)},
            }
            self.predicted.append(line)
            yield line

    def preview_predictions(self) -> Iterator[str]:
        for line in self.predicted[:_SHOWN_LINES]:
            shares = sorted(line["shares"].items(), key=lambda each: -each[1])[:3]
            yield f"{line['image']}: " + ", ".join(f"{name} {share:.0%}" for name, share in shares)

    def write_prediction_files(self, output: Any, rows: Any, directory: Path) -> None:
        """Write the masks as png, in the size and with the numbers of those given; draw some over their images."""
        masks = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
        pictures = []
        for number, (row, line, found) in enumerate(zip(rows, self.predicted, masks, strict=True)):
            image = self.open_row(row, TEST)
            mask = resize_mask(found, (image.height, image.width))
            save_mask(mask + 1 if self.arguments.do_reduce_labels else mask, directory / line["mask"])
            if number < _SHOWN_PICTURES:
                pictures.append(self._build_picture(row, image, mask, line["image"]))
        has_truth = len(rows) > 0 and rows[0].get(self.mask_column) is not None
        note = "the image, its mask, the predicted mask" if has_truth else "the image, the predicted mask"
        write_gallery(directory, "masks", "Predicted masks", pictures, note)

    def _build_picture(self, row: Mapping[str, Any], image: Any, mask: np.ndarray, name: str) -> Picture:
        shown, text = [image.convert("RGB"), draw_mask_over(image, mask)], ""
        if row.get(self.mask_column) is not None:
            truth = self._open_mask(row[self.mask_column], TEST)
            shown.insert(1, draw_mask_over(image, truth))
            counted = truth != IGNORED
            text = f"{(mask == truth)[counted].mean():.1%} of the pixels are right" if counted.any() else ""
        return Picture(place_side_by_side(shown), name, text)

    def get_card_arguments(self) -> dict[str, Any]:
        return {"tasks": "image-segmentation", "tags": ["vision"]}


def _join(pixels: Tensor, mask: np.ndarray) -> dict[str, Tensor]:
    """Return an image and its mask, in the size of the image, as the model takes them."""
    return {"pixel_values": pixels, "labels": torch.tensor(resize_mask(mask, pixels.shape[-2:]))}
