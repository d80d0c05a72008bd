"""Files that rows hold: a path, the bytes themselves, or both, as `datasets` stores images and sound."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from ostinato import ConfigError, DataError


@dataclass(frozen=True)
class MediaFile:
    """A file by its path, or by its bytes if they are in the row."""

    name: str  # in messages and predictions: the path as the row has it
    path: Path | None = None
    data: bytes | None = None

    @classmethod
    def from_value(cls, value: Any, directory: Path) -> MediaFile | None:
        """Return the file that a value of a row stands for; None if it stands for none.

        >>> MediaFile.from_value("a/b.png", Path("rows")).path
        PosixPath('rows/a/b.png')
        """
        data = None
        if isinstance(value, Mapping):
            data, value = value.get("bytes"), value.get("path")
        elif isinstance(value, (bytes, bytearray)):
            data, value = bytes(value), None
        if data is not None:
            return cls(str(value or "bytes in the row"), None, data)
        return cls(value, directory / value) if isinstance(value, str) and value else None

    def check(self) -> None:
        """Raise if there is no such file, or nothing in it. Does not read it."""
        if self.data is not None:
            size = len(self.data)
        else:
            assert self.path is not None
            try:
                size = self.path.stat().st_size if not self.path.is_dir() else -1
            except OSError as error:
                raise self._build_missing_error(error) from None
            if size < 0:
                raise DataError(f"{self.name} is a directory", "a row names one file", "correct the path")
        if size == 0:
            raise DataError(f"{self.name} is empty", "it has 0 bytes", "replace the file, or remove the row")

    def open(self) -> IO[bytes]:
        """Return the file, open for reading."""
        self.check()
        return io.BytesIO(self.data) if self.path is None else self.path.open("rb")  # type: ignore[arg-type]

    def compute_key(self) -> str:
        """Return a key of the content: of the bytes, or of the path with the size and the time of the file."""
        if self.path is None:
            return hashlib.sha256(self.data or b"").hexdigest()
        state = self.path.stat()
        return hashlib.sha256(f"{self.path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}".encode()).hexdigest()

    def _build_missing_error(self, error: OSError) -> DataError:
        assert self.path is not None
        if "://" in self.name:
            return DataError(f"{self.name} cannot be read", "it is an address, not a file", "download the files first")
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            return DataError(f"{self.name} cannot be read", str(error), "check the permissions of the file")
        parent = self.path.parent
        near = get_close_matches(self.path.name, [one.name for one in parent.iterdir()]) if parent.is_dir() else []
        return DataError(
            what=f"{self.name}: there is no such file",
            why=f"the path is {self.path.absolute()}; relative paths start at the file of the rows",
            fix=f"did you mean {near[0]}?" if near else "correct the path, or remove the row",
        )


def looks_like_text(beginning: bytes) -> bool:
    """Return whether the beginning of a file is text, whatever its name says.

    >>> looks_like_text(b"Hello"), looks_like_text(bytes([137, 80, 78, 71]))
    (True, False)
    """
    try:
        text = beginning.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end < len(beginning):
            return False
        text = beginning[: error.start].decode("utf-8")  # a character that is cut at the end
    return all(one.isprintable() or one in "\r\n\t" for one in text)


def import_media_library(module: str, package: str, what: str) -> Any:
    """Return a library that decodes media, or raise an error that names the extra to install.

    >>> import_media_library("PIL.Image", "pillow", "images").__name__
    'PIL.Image'
    """
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(
            what=f"{what} cannot be read", why=f"{package} is not installed", fix="pip install 'ostinato[media]'"
        ) from None
