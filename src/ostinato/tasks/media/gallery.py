"""Pictures for the report of a run: a title, thumbnails as PNG files, a few words under each.

They lie in `gallery/` beside the journal, one JSON file for each grid; `ostinato report` puts them into the page:

    {"title": "Predictions", "note": "…", "pictures": [{"file": "predictions-0.png", "caption": "cat", "text": "0.98",
     "mark": "right"}]}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY_NAME = "gallery"
MAX_PICTURES, _MAX_SIDE, _MIN_SIDE = 48, 256, 96  # pixels


@dataclass(frozen=True)
class Picture:
    """An image of Pillow (of a sound: its waveform or spectrogram), and its caption."""

    image: Any
    caption: str
    text: str = ""
    mark: str = ""  # "right" or "wrong"


def write_gallery(output_dir: Path, name: str, title: str, pictures: Sequence[Picture], note: str = "") -> None:
    """Write a grid of pictures for the report of the run in a directory; an earlier one of that name is replaced.

    >>> write_gallery(Path("out"), "predictions", "Predictions", [])  # doctest: +SKIP
    """
    directory = output_dir / DIRECTORY_NAME
    directory.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, picture in enumerate(pictures[:MAX_PICTURES]):
        file = f"{name}-{number}.png"
        _build_thumbnail(picture.image).save(directory / file)
        entries.append({"file": file, "caption": picture.caption, "text": picture.text, "mark": picture.mark})
    content = {"title": title, "note": note, "pictures": entries}
    (directory / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _build_thumbnail(image: Any) -> Any:
    """Return an image of a size that can be seen: large ones are scaled down, tiny ones by a whole factor up."""
    image = image if image.mode in ("RGB", "L") else image.convert("RGB")
    side, most = max(image.size), _MAX_SIDE * (2 if image.width >= 2 * image.height else 1)  # several in a row
    if side > most:
        image = image.copy()
        image.thumbnail((most, most))
    elif side < _MIN_SIDE:
        factor = -(-_MIN_SIDE // side)
        image = image.resize((image.width * factor, image.height * factor), resample=0)
    return image
