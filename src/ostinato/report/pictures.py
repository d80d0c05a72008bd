"""Grids of pictures that a recipe left in `gallery/` beside the journal: JSON files, and thumbnails as PNG.

The files are read as untrusted: names stay within the directory, only PNG is embedded, and not too much of it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .html import render_panel
from .text import escape

DIRECTORY_NAME = "gallery"
_PNG = b"\x89PNG\r\n\x1a\n"
_NAME = re.compile(r"[\w-]{1,80}\.png")
_MAX_GRIDS, _MAX_PICTURES, _MAX_BYTES, _MAX_JSON = 8, 48, 400_000, 1_000_000
_MARKS = {"right": ("✓", "ok"), "wrong": ("✗", "bad")}


def render_galleries(directory: Path) -> str:
    """Return the grids of pictures of a run as HTML; an empty text if there are none."""
    files = sorted((directory / DIRECTORY_NAME).glob("*.json"))[:_MAX_GRIDS]
    return "".join(_render_gallery(content, file.parent) for file in files if (content := _read_json(file)))


def _read_json(file: Path) -> Mapping[str, Any] | None:
    try:
        if file.stat().st_size > _MAX_JSON:
            return None
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # a damaged file costs its grid, not the page
    return content if isinstance(content, dict) and isinstance(content.get("pictures"), list) else None


def _render_gallery(content: Mapping[str, Any], directory: Path) -> str:
    figures = "".join(_render_figures(content["pictures"][:_MAX_PICTURES], directory))
    if not figures:
        return ""
    note = str(content.get("note") or "")
    return render_panel(str(content.get("title") or "Pictures"), f'<div class="gallery">{figures}</div>', note=note)


def _render_figures(pictures: list[Any], directory: Path) -> Iterator[str]:
    for picture in pictures:
        if not isinstance(picture, dict) or (data := _read_png(picture.get("file"), directory)) is None:
            continue
        caption, text = escape(picture.get("caption") or ""), escape(picture.get("text") or "")
        sign, kind = _MARKS.get(str(picture.get("mark")), ("", ""))
        mark = f'<b class="{kind}">{sign}</b> ' if sign else ""
        figure = "<figure class=wide>" if _is_wide(data) else "<figure>"
        yield (
            f'{figure}<img alt="{caption}" src="data:image/png;base64,{base64.b64encode(data).decode()}">'
            f"<div>{mark}{caption}</div><div class=mut>{text}</div></figure>"
        )


def _is_wide(png: bytes) -> bool:
    """Return whether a picture is twice as wide as high, such as several images in a row; its header says so."""
    width, height = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
    return width >= 2 * height > 0


def _read_png(name: Any, directory: Path) -> bytes | None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return None
    path = directory / name
    try:
        if path.is_symlink() or path.stat().st_size > _MAX_BYTES:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    return data if data.startswith(_PNG) else None
