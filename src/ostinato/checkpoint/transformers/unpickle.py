"""Read what `torch.save` wrote, without running it: the only file of the package that opens a pickle.

torch's restricted reader (`weights_only=True`) makes tensors and plain values and refuses every other name it finds.
The five names that `rng_state.pth` needs are mapped to substitutes, so that a file calls nothing of numpy.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from ...core.errors import CheckpointError
from .. import io


def read_torch_file(path: Path) -> Any:
    """Return what `torch.save` wrote, if it consists of tensors and plain values; nothing else is called or imported.

    >>> read_torch_file(Path("out/checkpoint-20/scheduler.pt"))["last_epoch"]  # doctest: +SKIP
    20
    """
    try:
        file = os.fdopen(io.open_regular(path), "rb")
    except FileNotFoundError as error:
        raise io.build_missing_error(path) from error
    except OSError as error:
        raise io.build_broken_error(path, f"{path.name} cannot be read (links are not followed): {error}") from error
    with file, torch.serialization.safe_globals(_SUBSTITUTES):
        _check_archive(path, file)
        try:
            content = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # any error that a damaged or hostile file causes
            raise io.build_broken_error(path, _explain_refusal(path, file, error)) from error
    for tensor in _find_tensors(content):
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise io.build_broken_error(
                path, f"{path.name} has a tensor of {list(tensor.shape)} that it holds no numbers for"
            )
    return content


def read_numpy_words(saved: Any) -> np.ndarray:
    """Return the 624 numbers of numpy's stream, from an array as numpy pickles it or from plain numbers."""
    if isinstance(saved, _Array):
        _, shape, kind, _, raw = saved.words
        if kind.name != "u4" or shape != (624,) or kind.order not in ("<", ">"):
            raise ValueError(f"numpy's stream has words of kind {kind.name!r}, {shape}")
        numbers = np.frombuffer(raw, dtype=f"{kind.order}u4").astype(np.uint32)
    else:
        numbers = np.array(saved.tolist() if isinstance(saved, torch.Tensor) else saved, dtype=np.uint32)
    if numbers.shape != (624,):
        raise ValueError(f"numpy's stream has {numbers.size} words")
    return numbers


class _Array:
    """A substitute for a numpy array while random streams are read: it keeps the contents of the file."""

    words: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.words = state


class _Kind:
    """A substitute for a numpy dtype."""

    order = ""

    def __init__(self, name: str = "", *flags: Any) -> None:
        self.name = name

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]


def _array(*arguments: Any) -> _Array:
    return _Array()


def _bytes(text: str, encoding: str = "latin1") -> bytes:
    return str.encode(text, "latin1")


# `rng_state.pth` names these. The functions of numpy are not called: the array is made from its bytes afterwards.
_SUBSTITUTES: list[Any] = [
    (_array, "numpy._core.multiarray._reconstruct"),
    (_array, "numpy.core.multiarray._reconstruct"),
    (_Array, "numpy.ndarray"),
    (_Kind, "numpy.dtype"),
    (_bytes, "_codecs.encode"),
]


def check_archive(path: Path) -> None:
    """Raise `CheckpointError` unless a file is an intact archive of torch's; nothing in it is unpickled.

    >>> check_archive(Path("out/checkpoint-20/optimizer.pt"))  # doctest: +SKIP
    """
    with os.fdopen(io.open_regular(path), "rb") as file:
        _check_archive(path, file)


def _check_archive(path: Path, file: IO[bytes]) -> None:
    """Raise unless the checksums of an archive are right, which torch does not compare.

    torch's files are archives without compression: they do not unpack to more than their size.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            if unpacked > os.fstat(file.fileno()).st_size:
                raise io.build_broken_error(path, f"{path.name} would unpack to {unpacked} bytes, more than it has")
            altered = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise io.build_broken_error(
            path, f"{path.name} is not a file that torch saved, or damaged: {error}"
        ) from error
    if altered is not None:
        raise io.build_broken_error(path, f"{path.name} is damaged: {altered} does not match its checksum")
    file.seek(0)


def _explain_refusal(path: Path, file: IO[bytes], error: Exception) -> str:
    try:
        file.seek(0)
        names = torch.serialization.get_unsafe_globals_in_checkpoint(file)  # reads the names, and imports none
    except Exception:
        names = []
    if names:
        return f"{path.name} names {', '.join(sorted(names)[:5])}: reading that would run code, so it is not read"
    return f"{path.name} is damaged or not plain: {str(error).splitlines()[0] if str(error) else error!r}"


def _find_tensors(content: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a file. Each container is visited once: it may contain itself, or be in many others."""
    seen: set[int] = set()
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, dict) else value)
