"""Common part of pretraining on images: parts of an image are hidden, and the model restores them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ostinato import ConfigError, Trainer
from ostinato.logging import get_logger

from .media.gallery import Picture, write_gallery
from .media.image_augmentation import as_image
from .media.image_recipe import ImageArguments, ImageRecipe
from .media.masks import place_side_by_side
from .rows import Split
from .task_arguments import flag

_ROWS_PER_BATCH = 256  # for which `base_learning_rate` is the learning rate
_DRAWN = 8


@dataclass
class ReconstructionArguments(ImageArguments):
    """What is hidden, and the learning rate."""

    mask_ratio: float = flag(0.75, "The share of an image that is hidden.")
    patch_size: int | None = flag(None, "The side of a new model's patches in pixels.")
    base_learning_rate: float | None = flag(
        None, f"The learning rate for steps of {_ROWS_PER_BATCH} images; for other steps it is scaled in proportion."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.mask_ratio < 1:
            raise ConfigError(
                what=f"--mask_ratio {self.mask_ratio:g}",
                why="a part of the image is hidden, and a part is shown",
                fix="choose a share between 0 and 1, such as 0.75",
            )


class ImageReconstruction(ImageRecipe):
    """Recipe for images without labels. A subclass defines what is hidden, and how the restored image is read."""

    defaults: ClassVar[Mapping[str, Any]] = {"label_names": ["pixel_values"], "prediction_loss_only": True}
    arguments_class = ReconstructionArguments

    model: nn.Module
    features: dict[str, Any]
    losses: list[float]
    names: list[str]

    def inspect_splits(self, splits: Mapping[str, Split]) -> None:
        base, training = self.arguments.base_learning_rate, self.training
        if base is None or not training.do_train:
            return
        rows = training.train_batch_size * training.gradient_accumulation_steps * training.world_size
        training.learning_rate = base * rows / _ROWS_PER_BATCH
        get_logger().info(
            f"learning_rate={training.learning_rate:.4g}: base_learning_rate {base:g} for {_ROWS_PER_BATCH} images "
            f"a step, scaled to {rows}"
        )

    def prepare_config(self, config: Any) -> None:
        """Write the sizes into the config of a new model, and the share that is hidden into any that has it."""
        arguments = self.arguments
        if config.name_or_path == "" and arguments.image_size is not None and hasattr(config, "image_size"):
            config.image_size = arguments.image_size
        if arguments.patch_size is not None:
            config.patch_size = arguments.patch_size

    def prepare_model(self, model: Any) -> None:
        self.model, self.features = model, {}

    def build_features(self, split: Split) -> Any:
        self.features[split.name] = super().build_features(split)
        return self.features[split.name]

    def seed_row(self, row: Mapping[str, Any]) -> np.random.RandomState:
        """Return random numbers for what is hidden in evaluation: of an image, always the same."""
        return np.random.RandomState(zlib.crc32(self.find_file(row).encode()))

    def restore(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, float]:
        """Return the images restored of a batch, which pixels were hidden (1 or 0), and the loss.

        All are of pixel values, (images, channels, height, width).
        """
        raise NotImplementedError

    # ---- results ---------------------------------------------------------------------------------------------

    def predict(self, trainer: Trainer, features: Any, rows: Any) -> Any:
        """Return the output of the trainer's `predict`; the loss of every image is measured besides."""
        output = super().predict(trainer, features, rows)
        self.losses = [self._restore_row(features[number])[2] for number in range(len(features))]
        return output

    def _restore_row(self, row: Mapping[str, Any]) -> tuple[Tensor, Tensor, float]:
        device, was_training = next(self.model.parameters()).device, self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                return self.restore({name: value[None].to(device) for name, value in row.items()})
        finally:
            self.model.train(was_training)

    def format_predictions(self, output: Any, rows: Any) -> Iterator[dict[str, Any]]:
        self.names = [self.find_file(row) for row in rows]
        for name, loss in zip(self.names, self.losses, strict=True):
            yield {"image": name, "loss": round(loss, 6)}

    def preview_predictions(self) -> Iterator[str]:
        order = np.argsort(self.losses)
        for what, number in (("restored best", order[0]), ("restored worst", order[-1])):
            yield f"{what}: {self.names[number]}, loss {self.losses[number]:.4g}"

    def write_evaluation_files(self, rows: Any, directory: Path) -> None:
        self._draw_some(self.features["validation"], rows, directory)

    def write_prediction_files(self, output: Any, rows: Any, directory: Path) -> None:
        if "validation" not in self.features:
            self._draw_some(self.features["test"], rows, directory)

    def _draw_some(self, features: Any, rows: Any, directory: Path) -> None:
        """Draw some images for the report: as they are, what the model sees, and what it makes of it."""
        if any(type(weight).__name__ == "DTensor" for weight in self.model.parameters()):
            return  # the other processes would have to take part
        pictures = [self._draw(features[number], rows[number]) for number in range(min(_DRAWN, len(features)))]
        note = "the image, what is shown of it, restored"
        write_gallery(directory, "reconstructions", "Reconstructions", pictures, note)

    def _draw(self, features: Mapping[str, Any], row: Mapping[str, Any]) -> Picture:
        restored, hidden, loss = self._restore_row(features)
        image = features["pixel_values"]
        hidden = hidden[0].cpu()
        whole = torch.where(hidden > 0, restored[0].cpu().float(), image)
        shown = self.pixels.restore(image)
        shown[(hidden > 0).numpy()[0]] = 128
        pictures = [as_image(self.pixels.restore(image)), as_image(shown), as_image(self.pixels.restore(whole))]
        scale = max(1, 80 // pictures[0].height)
        larger = [one.convert("RGB").resize((one.width * scale, one.height * scale), resample=0) for one in pictures]
        return Picture(place_side_by_side(larger), self.find_file(row), f"loss {loss:.4g}")

    def get_card_arguments(self) -> dict[str, Any]:
        return {"tasks": "image-feature-extraction", "tags": ["vision", "masked-image-modeling"]}
