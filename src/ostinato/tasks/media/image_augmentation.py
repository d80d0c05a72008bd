"""Random changes of training images: crop, flip, colours, erasing. Written with Pillow and numpy.

Random numbers come from Python's `random`, which the loader seeds for each row: the same row of the same epoch is
changed in the same way by any number of workers, and after a run was interrupted.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from .images import import_pillow

_TRIES = 10  # of a crop, before the largest one in the middle is taken


@dataclass(frozen=True)
class Crop:
    """A part of an image, `(left, top, right, bottom)`, and whether it is mirrored."""

    box: tuple[int, int, int, int]
    is_flipped: bool = False


@dataclass(frozen=True)
class ImageAugmentation:
    """What may happen to a training image, and how much of it.

    Args:
        scale: Smallest and largest share of the image's area in a crop; None keeps the whole image.
        ratio: Smallest and largest width by height of a crop.
        flip: Probability that an image is mirrored.
        jitter: Largest relative change of brightness, contrast and saturation.
        erasing: Probability that a random rectangle is erased.

    >>> ImageAugmentation(scale=None, flip=0.0).is_on
    False
    """

    scale: tuple[float, float] | None = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: float = 0.0
    erasing: float = 0.0

    @property
    def is_on(self) -> bool:
        return self.scale is not None or self.flip > 0 or self.jitter > 0 or self.erasing > 0

    def draw_crop(self, width: int, height: int) -> Crop:
        """Draw which part of an image is taken, and whether it is mirrored."""
        box = (0, 0, width, height) if self.scale is None else draw_box(width, height, self.scale, self.ratio)
        return Crop(box, self.flip > 0 and random.random() < self.flip)

    def change_colors(self, image: Any) -> Any:
        """Return an image with random brightness, contrast and saturation, changed in a random order."""
        if self.jitter <= 0:
            return image
        enhance = import_pillow("ImageEnhance")
        changes = [enhance.Brightness, enhance.Contrast, *([enhance.Color] if image.mode == "RGB" else [])]
        random.shuffle(changes)
        for change in changes:
            image = change(image).enhance(random.uniform(max(0.0, 1 - self.jitter), 1 + self.jitter))
        return image

    def erase(self, values: Tensor) -> Tensor:
        """Return pixel values (channels, height, width) of which a random rectangle may be 0, the mean."""
        if self.erasing <= 0 or random.random() >= self.erasing:
            return values
        height, width = values.shape[-2:]
        left, top, right, bottom = draw_box(width, height, (0.02, 0.33), (0.3, 3.3))
        values[..., top:bottom, left:right] = 0
        return values


def draw_box(
    width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int, int, int]:
    """Draw a rectangle within an image: its share of the area, the logarithm of its ratio and its place are uniform.

    >>> random.seed(0)
    >>> draw_box(100, 50, (0.25, 0.25), (1.0, 1.0))
    (53, 1, 88, 36)
    """
    for _ in range(_TRIES):
        area = width * height * random.uniform(*scale)
        shape = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        wide, high = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < wide <= width and 0 < high <= height:
            left, top = random.randint(0, width - wide), random.randint(0, height - high)
            return left, top, left + wide, top + high
    wide, high = min(width, max(1, round(height * ratio[1]))), min(height, max(1, round(width / ratio[0])))
    left, top = (width - wide) // 2, (height - high) // 2
    return left, top, left + wide, top + high


def apply_crop(image: Any, crop: Crop, size: tuple[int, int], resample: int) -> Any:
    """Return a part of an image, scaled to a size (height, width), mirrored if the crop is."""
    pillow = import_pillow()
    image = image.resize((size[1], size[0]), resample=resample, box=crop.box)
    return image.transpose(pillow.Transpose.FLIP_LEFT_RIGHT) if crop.is_flipped else image


def as_image(values: np.ndarray) -> Any:
    """Return an image of Pillow with these values of 8 bits: (height, width) or (height, width, channels)."""
    return import_pillow().fromarray(values[..., 0] if values.ndim == 3 and values.shape[2] == 1 else values)
