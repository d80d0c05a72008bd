"""Images and recordings of real data sets, for tests of recipes; they lie beside the repository and are no part of it.

`OSTINATO_REAL_DATA` names another directory. Where there is none, the tests are skipped.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.long_tests import long_only

DIRECTORY = Path(os.environ.get("OSTINATO_REAL_DATA") or Path(__file__).parents[3] / "shared" / "data").resolve()

_needs_data = pytest.mark.skipif(
    not (DIRECTORY / "image-classification").is_dir(), reason=f"there are no real data sets in {DIRECTORY}"
)


def on_real_data(test: Any) -> Any:
    """Mark a test that needs the data sets, and takes a while."""
    return long_only(_needs_data(test))


CLOTHES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Boot")


def read_clothes(split: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first images of Fashion-MNIST (28 x 28 pixels) and their labels; split is "train" or "t10k"."""
    home = DIRECTORY / "image-classification"
    pixels = gzip.decompress((home / f"fashion-mnist-{split}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((home / f"fashion-mnist-{split}-labels-idx1-ubyte.gz").read_bytes())
    images = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28)
    return images[:count], np.frombuffer(labels, np.uint8, offset=8)[:count]


def write_images(directory: Path, images: np.ndarray, labels: Iterable[str]) -> Path:
    """Write images into a folder for each label, under the numbers of their rows."""
    from PIL import Image

    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = directory / label / f"{number:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return directory


def write_clothes(directory: Path, count: int, kinds: Sequence[str], split: str = "train") -> Path:
    """Write images of some kinds of clothes, of the first `count` rows, into a folder for each kind."""
    images, labels = read_clothes(split, count)
    names = np.array(CLOTHES)[labels]
    return write_images(directory, images[np.isin(names, kinds)], names[np.isin(names, kinds)])


def read_table(file: str, count: int | None = None, column: str | None = None) -> list[dict[str, Any]]:
    """Return the first rows of a table, such as "speech-recognition/asterisk-en-train", with whole paths."""
    path = (DIRECTORY / file).with_suffix(".jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[:count]]
    for row in rows:
        for name in ("file", "image", "image_path", "label"):
            if isinstance(row.get(name), str) and (path.parent / row[name]).is_file():
                row[name] = str(path.parent / row[name])
    return rows


def copy_digits(directory: Path, digits: Sequence[str], each: int, first: int = 5) -> Path:
    """Copy recordings of digits, `each` of every speaker, into a folder for each digit."""
    for file in sorted((DIRECTORY / "audio-classification/fsdd").glob("*.wav")):
        digit, _, number = file.stem.split("_")
        if digit in digits and first <= int(number) < first + each:
            target = directory / digit / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    return directory
