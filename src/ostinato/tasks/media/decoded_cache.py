"""Decoded files, kept on the disk: each is decoded once, by whichever process needs it first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ostinato.logging import get_logger

from .media_files import MediaFile


class DecodedCache:
    """Arrays in a directory, one file each, named after the content of the file they were decoded from.

    A changed file has another name, so it is decoded again. Several processes may share a directory.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._is_writable = True

    def read(self, file: MediaFile, kind: str, decode: Callable[[MediaFile], np.ndarray]) -> np.ndarray:
        """Return the decoded file; `kind` tells results of different decoders apart."""
        file.check()
        path = self.directory / kind / f"{file.compute_key()}.npy"
        try:
            return np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError):  # not there yet, or cut off
            array = decode(file)
        if self._is_writable:
            self._write(path, array)
        return array

    def _write(self, path: Path, array: np.ndarray) -> None:
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                np.save(file, array, allow_pickle=False)
            os.replace(unfinished, path)
        except OSError as error:
            self._is_writable = False
            unfinished.unlink(missing_ok=True)
            get_logger().warning(f"decoded files are no longer kept: {error}")
