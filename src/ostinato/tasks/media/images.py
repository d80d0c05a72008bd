"""Decoding of images with Pillow: any format and mode it knows, upright, as RGB or grey."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from ostinato import DataError
from ostinato.logging import get_logger

from .media_files import MediaFile, import_media_library, looks_like_text
from .media_reader import MediaKind

IMAGE = MediaKind(
    name="image",
    endings=(".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".avif"),
    columns=("image", "image_path", "img", "file_name", "file", "path", "filename"),
    feature="Image",
)
_DECODE_ERRORS = (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, struct.error, zlib.error)
_ORIENTATION = 274  # the tag of EXIF
_said: set[str] = set()


def import_pillow(module: str = "Image") -> Any:
    """Return a module of Pillow, or raise an error that names the extra to install."""
    return import_media_library(f"PIL.{module}", "pillow", "images")


def decode_image(file: MediaFile, mode: str = "RGB") -> Any:
    """Return an image of Pillow in a mode, "RGB" or "L", turned upright as its EXIF data say.

    16-bit and floating-point images are scaled to 8 bits; what is transparent becomes white; of an animation the first
    image is taken.

    Raises:
        DataError: The file is missing, empty, cut off or no image.
    """
    image = load_image(file)
    if image.getexif().get(_ORIENTATION, 1) != 1:
        image = import_pillow("ImageOps").exif_transpose(image)
    if image.mode == mode:
        return image
    if image.mode.startswith(("I", "F")):
        image = _scale_to_8_bits(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = _fill_transparency(image)
    return image if image.mode == mode else image.convert(mode)


def load_image(file: MediaFile) -> Any:
    """Return an image of Pillow as it is stored, with all its pixels read; raise a DataError that names the file."""
    pillow = import_pillow()
    with file.open() as stream:
        try:
            image = pillow.open(stream)
            if 0 in image.size:
                raise DataError(f"{file.name} has no pixels", f"its size is {image.size}", "replace the file")
            if getattr(image, "n_frames", 1) > 1:
                _say_once("of images with several frames, the first one is read")
            image.load()
        except DataError:
            raise
        except pillow.DecompressionBombError as error:
            raise DataError(f"{file.name} is too large", str(error), "scale the image down") from error
        except pillow.UnidentifiedImageError as error:
            stream.seek(0)
            raise _build_unknown_error(file, stream.read(256)) from error
        except _DECODE_ERRORS as error:
            raise DataError(
                what=f"{file.name} cannot be decoded; it is cut off or damaged",
                why=str(error) or type(error).__name__,
                fix="replace the file, or remove the row; skip_bad_rows=True goes on without it",
            ) from error
    return image


def _build_unknown_error(file: MediaFile, beginning: bytes) -> DataError:
    if looks_like_text(beginning):
        shown = beginning.decode("utf-8", "replace")[:40].replace("\n", " ")
        why = f"it is a text that begins with {shown!r}"
    else:
        why = f"it begins with the bytes {beginning[:8].hex(' ')}, which no known format of images does"
    return DataError(f"{file.name} is not an image", why, "replace the file, or remove the row")


def _scale_to_8_bits(image: Any) -> Any:
    """Return a grey image of 8 bits, made of one with 16 or 32 bits or with fractions."""
    values = np.asarray(image)
    if values.dtype.kind == "f":
        top = 1.0 if values.size and float(np.nanmax(values)) <= 1 else 255.0
        _say_once(f"images with fractions are read as from 0 to {top:g}")
    elif values.dtype == bool:
        top = 1.0
    else:
        top = 65535.0
        _say_once("images of 16 bits are read with 8")
    scaled = np.clip(np.nan_to_num(values.astype(np.float64)) / top, 0, 1) * 255
    return import_pillow().fromarray(np.round(scaled).astype(np.uint8))


def _fill_transparency(image: Any) -> Any:
    _say_once("transparent parts of images are read as white")
    image = image.convert("RGBA")
    ground = import_pillow().new("RGBA", image.size, "white")
    ground.alpha_composite(image)
    return ground.convert("RGB")


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        get_logger().info(text)


def read_value(value: Any, file: MediaFile | None) -> MediaFile:
    """Return the file of a value; raise if the row names none."""
    if file is None:
        raise DataError("no image is named", f"the value is {str(value)[:60]!r}", "name a file, or remove the row")
    return file
