"""Generator of pictures: coloured shapes on noise, drawn with numpy, stored as PNG."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..media.image_augmentation import as_image
from .sentences import create_random, pick

SHAPES = ("circle", "cross", "square", "triangle")
COLORS = {"red": (220, 50, 40), "green": (40, 170, 70), "blue": (50, 90, 220), "yellow": (230, 200, 40)}


def draw_shape(shape: str, color: str, numbers: random.Random, side: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Return a picture of a shape (side, side, 3) on grey noise, and the mask of its pixels (side, side).

    >>> picture, mask = draw_shape("square", "red", random.Random(0))
    >>> picture.shape, mask.dtype.name
    ((32, 32, 3), 'bool')
    """
    mask = build_mask(shape, numbers, side)
    noise = np.random.RandomState(numbers.randrange(2**32)).randint(-18, 19, (side, side, 3))
    ground = np.full((side, side, 3), numbers.randrange(90, 190))
    picture = np.where(mask[..., None], np.array(COLORS[color]), ground) + noise
    return np.clip(picture, 0, 255).astype(np.uint8), mask


def build_mask(shape: str, numbers: random.Random, side: int) -> np.ndarray:
    """Return the pixels of a shape of random size at a random place."""
    radius = side * numbers.uniform(0.22, 0.38)
    x0, y0 = (numbers.uniform(radius, side - radius) for _ in range(2))
    y, x = np.mgrid[:side, :side] + 0.5
    x, y = (x - x0) / radius, (y - y0) / radius
    if shape == "circle":
        return x**2 + y**2 <= 1
    if shape == "square":
        return (abs(x) <= 0.85) & (abs(y) <= 0.85)
    if shape == "cross":
        return ((abs(x) <= 0.28) & (abs(y) <= 1)) | ((abs(y) <= 0.28) & (abs(x) <= 1))
    return (y <= 0.9) & (y >= 2 * abs(x) - 0.9)


def save_picture(values: np.ndarray, path: Path) -> None:
    """Write a picture, unless the file is there with the same pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image: Any = as_image(values)
    image.save(path)


def write_unlabelled_shapes(
    directory: Path, sizes: Mapping[str, int] = MappingProxyType({"train": 320, "validation": 64, "test": 16})
) -> tuple[dict[str, Path], dict[str, np.ndarray]]:
    """Write a folder of pictures for each split; return the folders, and all pictures of each."""
    numbers, folders, pictures = create_random(0), {}, {}
    for split, count in sizes.items():
        folders[split] = directory / split
        drawn = [draw_shape(pick(SHAPES, numbers), pick(tuple(COLORS), numbers), numbers)[0] for _ in range(count)]
        for number, picture in enumerate(drawn):
            save_picture(picture, folders[split] / f"{number:03}.png")
        pictures[split] = np.stack(drawn)
    return folders, pictures
