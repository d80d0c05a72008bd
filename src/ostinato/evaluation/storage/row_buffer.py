"""The rows of one output, batch after batch: in a buffer that grows, or one after another in a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .disk_array import ArrayWriter, open_spilled
from .scratch_file import BLOCK, Scratch, ScratchDirectory, ScratchFile

_MAX_GROWTH = 2**28  # bytes to allocate at once


@dataclass(frozen=True, slots=True)
class Piece:
    """The array of one batch: unpadded, at an offset in its column."""

    column: Column
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def array(self) -> np.ndarray:
        """Return a view of the column."""
        return self.column.flat()[self.start : self.start + self.size].view(self.dtype).reshape(self.shape)


class ShapeError(ValueError):
    """Pieces that cannot be joined."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__("only rows and the second dimension may differ from batch to batch")
        self.shapes = list(dict.fromkeys(piece.shape for piece in pieces))


class Column:
    """Bytes, at first in memory. Batches are copied, so that the model's tensors can be freed and leave no gaps."""

    def __init__(self, scratch: Scratch) -> None:
        self.size = 0
        self._scratch = scratch
        self._buffer = np.empty(0, np.uint8)
        self._file: ScratchFile | None = None
        self._whole: np.ndarray | None = None  # set once nothing more is added

    @property
    def in_memory(self) -> int:
        return self.size if self._file is None else 0

    def add(self, array: np.ndarray, expected: int = 0) -> Piece:
        """Keep the elements of an array; `expected` is the final size of the column in bytes."""
        piece = Piece(self, self.size, array.shape, array.dtype)
        if self._file is not None:
            self._file.append(array)
        else:
            end = self.size + piece.size
            if end > len(self._buffer):
                # Memory that is not written to is not used: the expected size costs nothing before it is needed.
                self._grow(min(expected, end + _MAX_GROWTH) if end < expected else end + end // 4)
            self._buffer[self.size : end] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.size += piece.size
        return piece

    def _grow(self, size: int) -> None:
        if self.size == 0:
            self._buffer = np.empty(size, np.uint8)
        else:
            self._buffer.resize(size, refcheck=False)

    def spill(self, expected: int) -> ScratchDirectory | None:
        """Continue in a file and return its place; None if the column is in a file already."""
        if self._file is not None:
            return None
        self._file = ScratchFile(self._scratch, expected)
        self._file.append(self._buffer[: self.size])
        self._buffer = np.empty(0, np.uint8)
        return self._file.location

    def finish(self, *, fits: bool) -> None:
        """End the writing; move the column back to memory if it `fits`."""
        if self._whole is not None:
            return
        if self._file is None or self.size == 0:
            self._grow(self.size)
            self._whole = self._buffer
        else:
            self._whole = open_spilled(self._file, (self.size,), np.uint8)
            if fits:
                self._whole, self._file = np.array(self._whole), None

    def flat(self) -> np.ndarray:
        """Return all bytes, once the column is finished."""
        assert self._whole is not None
        return self._whole


def _compute_joined_shape(pieces: Sequence[Piece]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Return shape and dtype of the joined pieces, and whether some have to be padded in the second dimension."""
    shapes = [piece.shape or (1,) for piece in pieces]
    if len({(len(shape), shape[2:]) for shape in shapes}) != 1:
        raise ShapeError(pieces)
    rows, widths = sum(shape[0] for shape in shapes), {shape[1] for shape in shapes if len(shape) > 1}
    ragged = len(widths) > 1
    dtype = pieces[0].dtype if ragged else np.result_type(*{piece.dtype for piece in pieces})
    return (rows, *((max(widths),) if widths else ()), *shapes[0][2:]), dtype, ragged


def join(scratch: Scratch, pieces: Sequence[Piece], padding: float, in_use: int = 0) -> np.ndarray:
    """Join pieces along the first dimension; those that follow one another in their column are not copied.

    `in_use` is the number of bytes that are in memory already.
    """
    shape, dtype, ragged = _compute_joined_shape(pieces)
    column, first = pieces[0].column, pieces[0].start
    if not ragged and _are_contiguous(pieces, dtype):
        return column.flat()[first : first + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
    result = ArrayWriter(scratch, shape, np.empty(0, dtype), in_use)
    for piece in pieces:
        array = piece.array().reshape(piece.shape or (1,))
        rows = max(1, BLOCK // max(1, math.prod(shape[1:]) * dtype.itemsize))
        for start in range(0, len(array), rows):
            block = array[start : start + rows]
            if ragged:
                block = _pad_block(block, shape, dtype, padding)
            result.add(block.astype(dtype, copy=False))
    return result.finish()


def _are_contiguous(pieces: Sequence[Piece], dtype: np.dtype[Any]) -> bool:
    ends = [piece.start + piece.size for piece in pieces]
    return all(piece.dtype == dtype and piece.column is pieces[0].column for piece in pieces) and all(
        piece.start == end for piece, end in zip(pieces[1:], ends, strict=False)
    )


def _pad_block(block: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any], padding: float) -> np.ndarray:
    full = np.full((len(block), *shape[1:]), padding, dtype=dtype)
    full[:, : block.shape[1]] = block
    return full
