"""Masks of segmentation: an image whose pixels are numbers of classes, as palette or grey, and as predicted."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ostinato import DataError

from ..rows import TEST, Split, import_datasets, is_saved_dataset
from .folders import find_metadata
from .image_augmentation import as_image
from .images import IMAGE, import_pillow, load_image
from .media_files import MediaFile
from .media_reader import MediaReader

IGNORED = 255  # pixels without a label
MASK_FOLDERS = ("masks", "mask", "labels", "annotations", "segmentation_masks")


def decode_mask(file: MediaFile) -> np.ndarray:
    """Return the numbers of classes that a mask holds (height, width): of a palette, its numbers, not its colours.

    Raises:
        DataError: The file is missing, empty, cut off, no image, or holds colours instead of numbers.
    """
    image = load_image(file)
    if image.format == "JPEG":
        raise DataError(
            what=f"{file.name} is a jpeg",
            why="jpeg changes the values of pixels a little, and here they are numbers of classes",
            fix="store masks as png",
        )
    values = np.asarray(image)
    if values.ndim == 3:
        channels = values[..., :1] if image.mode in ("LA", "PA") else values[..., :3]
        if (channels != channels[..., :1]).any():
            raise DataError(
                what=f"{file.name} holds colours, not numbers of classes",
                why=f"its mode is {image.mode}; a mask is a grey image or one with a palette",
                fix="store the number of the class in each pixel: as a grey png, or one with a palette",
            )
        values = channels[..., 0]
    if values.dtype.kind == "f":
        raise DataError(
            f"{file.name} holds fractions", "classes are whole numbers", "store a grey png of 8 or 16 bits"
        )
    return values.astype(np.int64)


def reduce_labels(mask: np.ndarray) -> np.ndarray:
    """Return a mask in which 0 is no label, and the others count from 0.

    >>> reduce_labels(np.array([0, 1, 2, 255])).tolist()
    [255, 0, 1, 255]
    """
    return np.where((mask == 0) | (mask == IGNORED), IGNORED, mask - 1)


def resize_mask(mask: np.ndarray, size: Sequence[int], box: tuple[int, int, int, int] | None = None) -> np.ndarray:
    """Return a mask, or a part of it, in another size (height, width); each pixel takes the nearest one's number."""
    pillow = import_pillow()
    image = pillow.fromarray(mask.astype(np.int32))
    return np.asarray(image.resize((size[1], size[0]), resample=pillow.Resampling.NEAREST, box=box)).astype(np.int64)


def wrap_mask(mask: np.ndarray) -> Tensor:
    """Return a mask as a tensor (height, width), in the type by which transforms of torchvision know masks."""
    values = torch.from_numpy(mask)
    try:
        return import_module("torchvision.tv_tensors").Mask(values)
    except ImportError:
        return values


def check_mask(mask: np.ndarray, size: tuple[int, int], name: str, class_names: Sequence[str] | None) -> None:
    """Raise if a mask has another size (width, height) than its image, or numbers that are no class, where known."""
    if mask.shape != (size[1], size[0]):
        raise DataError(
            what=f"{name} is {mask.shape[1]} x {mask.shape[0]} pixels, its image {size[0]} x {size[1]}",
            why="a mask has a number for each pixel of the image",
            fix="correct the row: another mask, or another image",
        )
    if class_names is None:
        return
    wrong = np.unique(mask[(mask != IGNORED) & ((mask < 0) | (mask >= len(class_names)))])
    if wrong.size:
        shown = ", ".join(map(str, wrong[:5].tolist()))
        raise DataError(
            what=f"{name} has pixels of the value {shown}, beyond the {len(class_names)} labels",
            why=f"labels are numbered from 0 to {len(class_names) - 1}; {IGNORED} means no label",
            fix="correct the mask; name all labels with --id2label; if 0 means no label, add --do_reduce_labels",
        )


def choose_colors(count: int) -> np.ndarray:
    """Return a colour for each class: black for the first, then hues that are far from one another.

    >>> choose_colors(2).tolist()
    [[0, 0, 0], [230, 57, 57]]
    """
    hues = ((number * 0.618034) % 1 for number in range(count - 1))
    colors = [(0.0, 0.0, 0.0), *(colorsys.hsv_to_rgb(hue, 0.75, 0.9) for hue in hues)]
    return np.round(np.array(colors) * 255).astype(np.uint8)


def draw_mask_over(image: Any, mask: np.ndarray) -> Any:
    """Return an image with the colours of a mask of the same size over it; what is not labelled stays."""
    picture = np.asarray(image.convert("RGB")).astype(np.float64)
    colors = choose_colors(max(2, int(mask[mask != IGNORED].max(initial=0)) + 1))
    shown = (mask != IGNORED) & (mask != 0)
    picture[shown] = 0.45 * picture[shown] + 0.55 * colors[mask[shown]]
    return as_image(picture.round().astype(np.uint8))


def place_side_by_side(images: Sequence[Any]) -> Any:
    """Return images of one height beside one another."""
    gap = 4
    width = sum(image.width for image in images) + gap * (len(images) - 1)
    whole, left = import_pillow().new("RGB", (width, images[0].height), "white"), 0
    for image in images:
        whole.paste(image, (left, 0))
        left += image.width + gap
    return whole


def save_mask(mask: np.ndarray, path: Path) -> None:
    """Write a mask as a png with a palette: its pixels are numbers, and it can be looked at."""
    path.parent.mkdir(parents=True, exist_ok=True)
    high = int(mask.max(initial=0))
    if high > IGNORED:
        import_pillow().fromarray(mask.astype(np.uint16)).save(path)
        return
    image = import_pillow().fromarray(mask.astype(np.uint8))
    image.putpalette(choose_colors(IGNORED + 1).tobytes())
    image.save(path)


def name_masks(names: Sequence[str]) -> list[str]:
    """Return a name for the mask of each image: the image's own, as .png, within one directory, each once.

    >>> name_masks(["a/b.jpg", "../a/b.png", "c.jpg"])
    ['a/b.png', 'a/b-1.png', 'c.png']
    """
    found: dict[str, int] = {}
    for number, name in enumerate(names):
        path = PurePosixPath(name.replace("\\", "/"))
        parts = [part for part in path.parts if part not in ("..", "/", ".") and ":" not in part]
        stem = str(PurePosixPath(*parts).with_suffix("")) if parts else f"row-{number + 1}"
        unused = stem
        while unused in found:
            unused = f"{stem}-{number}"
            number += 1
        found[unused] = number
    return [f"{stem}.png" for stem in found]


class MaskReader(MediaReader):
    """Read folders with `images/` and `masks/` too: files of the same name belong together."""

    def __init__(self) -> None:
        super().__init__(IMAGE)

    def read_file(self, file: str, name: str) -> Split:
        folder = Path(file)
        images = folder / "images"
        if not images.is_dir():
            if name != TEST and folder.is_dir() and find_metadata(folder) is None and not is_saved_dataset(folder):
                raise DataError(
                    what=f"{folder} holds no images with masks",
                    why="it has no folder 'images', and no metadata file",
                    fix=f"put images into {images} and masks of the same names into {folder / MASK_FOLDERS[0]}, "
                    f"or name a table of both: --{name}_file",
                )
            return super().read_file(file, name)
        masks = next((folder / one for one in MASK_FOLDERS if (folder / one).is_dir()), None)
        if masks is None:
            columns = {"image": self._list_files(images, folder)}
        else:
            columns = self._pair_files(images, masks, folder)
        return Split(name, import_datasets().Dataset.from_dict(columns), file, folder)

    def _list_files(self, directory: Path, start: Path) -> list[str]:
        found = (path for path in directory.rglob("*") if path.suffix.lower() in IMAGE.endings)
        return [str(path.relative_to(start)) for path in sorted(found)]

    def _pair_files(self, images: Path, masks: Path, folder: Path) -> dict[str, list[str]]:
        by_stem = {
            str(Path(one).relative_to(masks.name).with_suffix("")): one for one in self._list_files(masks, folder)
        }
        columns: dict[str, list[str]] = {"image": [], "label": []}
        for image in self._list_files(images, folder):
            stem = str(Path(image).relative_to(images.name).with_suffix(""))
            mask = by_stem.get(stem) or by_stem.get(f"{stem}_mask")
            if mask is None:
                raise DataError(
                    what=f"{folder / image} has no mask",
                    why=f"{masks} holds no file of that name",
                    fix=f"add {masks / stem}.png, or remove the image",
                )
            columns["image"].append(image)
            columns["label"].append(mask)
        return columns
