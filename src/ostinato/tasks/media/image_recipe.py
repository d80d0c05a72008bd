"""The base of recipes for images: reading, augmentation, the image processor, pictures for the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from ostinato import ConfigError

from ..rows import TEST, TRAIN, Split
from ..task_arguments import ModelArguments, flag
from .image_augmentation import ImageAugmentation, apply_crop, as_image
from .image_processors import Pixels, load_image_processor
from .images import IMAGE, decode_image, import_pillow, read_value
from .media_arguments import MediaArguments
from .media_files import MediaFile
from .media_recipe import MediaRecipe


@dataclass
class ImageArguments(MediaArguments):
    """The column of images, their size, and the augmentation of training images."""

    image_column_name: str | None = flag(
        None,
        "The column with the images (paths, relative to the file, or bytes), if not 'image' or 'image_path'.",
        aliases=["--image_column"],
    )
    image_size: int | None = flag(None, "The side of the model's images in pixels, if not that of the processor.")
    random_resized_crop: bool = flag(True, "Train on a random part of each image, scaled to the model's size.")
    crop_scale: float = flag(0.08, "The smallest share of an image's area that a random crop keeps.")
    horizontal_flip: bool = flag(True, "Mirror training images with probability 0.5.")
    color_jitter: float = flag(0.0, "The largest relative change of brightness, contrast and saturation.")
    random_erasing: float = flag(0.0, "The probability that a random rectangle of a training image is erased.")
    augment: bool = flag(True, "Change training images at random; false reads them as in evaluation.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, low, high in (("crop_scale", 1e-3, 1.0), ("color_jitter", 0.0, 1.0), ("random_erasing", 0.0, 1.0)):
            if not low <= getattr(self, name) <= high:
                raise ConfigError(
                    what=f"--{name} {getattr(self, name):g}", why=f"it is from {low:g} to {high:g}", fix="correct it"
                )

    def build_augmentation(self) -> ImageAugmentation:
        """Return what happens to training images."""
        if not self.augment:
            return ImageAugmentation(scale=None, flip=0.0)
        return ImageAugmentation(
            scale=(self.crop_scale, 1.0) if self.random_resized_crop else None,
            flip=0.5 if self.horizontal_flip else 0.0,
            jitter=self.color_jitter,
            erasing=self.random_erasing,
        )


@dataclass
class ImageModelArguments(ModelArguments):
    """The image processor."""

    image_processor_name: str | None = flag(None, "An image processor other than the model's, by path or name.")


class ImageRecipe(MediaRecipe):
    """A task on images. `transform`, a function of an image of Pillow, takes the place of the augmentation.

    Transforms of `torchvision.transforms.v2` are such functions; see `finish_pixels` for what it may return.
    """

    arguments_class = ImageArguments
    model_arguments_class = ImageModelArguments
    kind = IMAGE
    column_flag = "image_column_name"
    transform: ClassVar[Callable[..., Any] | None] = None

    pixels: Pixels
    augmentation: ImageAugmentation

    def load_processor(self, arguments: Any, splits: Mapping[str, Split]) -> Any:
        processor = load_image_processor(
            arguments, arguments.image_processor_name, self.config, self.arguments.image_size
        )
        self.set_pixels(processor)
        return processor

    def set_pixels(self, image_processor: Any) -> None:
        """Take an image processor for what makes pixel values of images."""
        self.pixels = Pixels(image_processor)
        self.augmentation = self.arguments.build_augmentation()

    # ---- reading ---------------------------------------------------------------------------------------------

    def open(self, value: Any, directory: Path) -> Any:
        """Return an image of Pillow in the mode that the model takes."""
        file = read_value(value, MediaFile.from_value(value, directory))
        if self.cache is None:
            return decode_image(file, self.mode)
        return as_image(
            self.cache.read(file, f"image-{self.mode}", lambda one: np.asarray(decode_image(one, self.mode)))
        )

    @property
    def mode(self) -> str:
        """The mode of images: "RGB", or "L" for a model with one channel. Before there is a model, "RGB"."""
        return self.pixels.mode if self.processor is not None else "RGB"

    def compute_pixels(self, image: Any, purpose: str) -> Tensor:
        """Return the pixel values of an image, augmented in training."""
        if purpose != TRAIN:
            return self.pixels.process(image)
        if (transform := type(self).transform) is not None:
            return self.finish_pixels(transform(image))
        if not self.augmentation.is_on:
            return self.pixels.process(image)
        crop = self.augmentation.draw_crop(*image.size)
        image = apply_crop(image, crop, self.pixels.size, import_pillow().Resampling.BILINEAR)
        return self.augmentation.erase(self.pixels.convert(self.augmentation.change_colors(image)))

    def finish_pixels(self, made: Any) -> Tensor:
        """Return the pixel values of what a transform has made; unless they are fractions, resized and normalized."""
        if isinstance(made, Tensor) and made.is_floating_point():
            return made
        return self.pixels.process(made if not isinstance(made, Tensor) else made.permute(1, 2, 0).numpy())

    def draw_row(self, row: Mapping[str, Any]) -> Any:
        return self.open_row(row, TEST)
