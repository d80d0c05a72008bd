"""Block-by-block work on large arrays: the division into blocks, and the operations that allow it.

Every function here returns bit for bit what numpy returns for the whole array, or `None`: then the work cannot be
divided (or not without another order of additions), and the caller has to do it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from .scratch_file import BLOCK

Key = tuple[slice, ...]
Shape = tuple[int, ...]


class BlockWriter(Protocol):
    """An array that is written from front to back."""

    def add(self, block: np.ndarray) -> None: ...

    def finish(self) -> np.ndarray: ...


@dataclass(frozen=True)
class BlockContext:
    """The functions that operations use: one creates a result, one releases blocks.

    `open_writer` returns a result of a shape that is otherwise like an array. `mark_used` is called with
    the blocks that were read.
    """

    open_writer: Callable[[Shape, np.ndarray], BlockWriter]
    mark_used: Callable[[Iterable[Any]], None]


# --- division into blocks --------------------------------------------------------------------------------------------


def is_in_order(array: np.ndarray, *, repeated: bool = False) -> bool:
    """Return whether iterating over the elements in C order goes through memory in one direction.

    `repeated` allows for arrays that were expanded with `np.broadcast_to`.

    >>> table = np.zeros((3, 4))
    >>> is_in_order(table[:, :-1]), is_in_order(table.T)
    (True, False)
    """
    steps = [stride for length, stride in zip(array.shape, array.strides, strict=True) if length > 1]
    steps = [step for step in steps if step or not repeated]
    return all(step > 0 for step in steps) and all(one >= other for one, other in pairwise(steps))


def can_be_divided(shape: Shape, arrays: Sequence[np.ndarray], *, repeated: bool = False) -> bool:
    """Return whether there is something to divide, and results come out in C order."""
    if not shape or 0 in shape:
        return False
    return all(is_in_order(array, repeated=repeated) and not array.dtype.hasobject for array in arrays)


def iterate_blocks(shape: Shape, arrays: Sequence[np.ndarray], depth: int | None = None) -> Iterator[Key]:
    """Yield blocks in C order: cut the first `depth` dimensions so that no array's block is much larger than `BLOCK`.

    >>> [key for key in iterate_blocks((2, 3), [np.zeros((2, 3))])]
    [(slice(0, 2, None),)]
    """
    depth = len(shape) if depth is None else depth
    spans = [max(_measure_span(array, axis - len(shape)) for array in arrays) for axis in range(depth)]
    cut = next((axis for axis, span in enumerate(spans) if span <= BLOCK), depth - 1)
    count = max(1, BLOCK // spans[cut])
    for place in np.ndindex(*shape[:cut]):
        fixed = tuple(slice(index, index + 1) for index in place)
        for start in range(0, shape[cut], count):
            yield (*fixed, slice(start, min(start + count, shape[cut])))


def _measure_span(array: np.ndarray, axis: int) -> int:
    """Return the number of bytes that one step along an axis (counted from the last) covers."""
    reach = [(length, abs(stride)) for length, stride in zip(array.shape, array.strides, strict=True)]
    inner = reach[array.ndim + axis + 1 :] if axis >= -array.ndim else reach
    extent = sum((length - 1) * stride for length, stride in inner) + max(array.itemsize, 8)
    own = reach[axis] if axis >= -array.ndim else (1, 0)
    return max(extent, own[1]) if own[0] > 1 else extent


def get_part(array: np.ndarray, key: Key, shape: Shape) -> np.ndarray:
    """Return the part of an array, broadcast to `shape`, that belongs to a block.

    >>> get_part(np.arange(3), (slice(0, 1),), (2, 3))
    array([0, 1, 2])
    """
    missing = len(shape) - array.ndim
    spread = ((array.shape[axis - missing], one) for axis, one in enumerate(key) if axis >= missing)
    return array[tuple(slice(None) if length == 1 else one for length, one in spread)]


# --- element by element ----------------------------------------------------------------------------------------------


def apply_elementwise(
    context: BlockContext,
    function: Callable[..., Any],
    operands: Sequence[Any],
    out: tuple[np.ndarray, ...] | None = None,
    **options: Any,
) -> Any:
    """Return `function(*operands)`, where each element of the result depends only on those at its place."""
    arrays = [operand for operand in operands if isinstance(operand, np.ndarray)]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    targets = list(out or ())
    if not can_be_divided(shape, [*arrays, *targets], repeated=True) or _may_overlap(arrays, targets, shape):
        return None
    results: list[BlockWriter] = []
    for key in iterate_blocks(shape, [*arrays, *targets]):
        given = [get_part(one, key, shape) if isinstance(one, np.ndarray) else one for one in operands]
        into = [target[key] for target in targets]
        if into:
            function(*given, out=tuple(into), **options)
        else:
            found = function(*given, **options)
            found = found if isinstance(found, tuple) else (found,)
            results = results or [context.open_writer(shape, one) for one in found]
            for result, one in zip(results, found, strict=True):
                result.add(one)
        context.mark_used([*given, *into])
    done = tuple(out or (result.finish() for result in results))
    return done[0] if len(done) == 1 else done


def _may_overlap(arrays: Sequence[np.ndarray], targets: Sequence[np.ndarray], shape: Shape) -> bool:
    """Return whether a block that is written may be read later."""
    if any(target.shape != shape for target in targets):
        return True
    return any(
        not _are_identical(array, target) and np.may_share_memory(array, target)
        for target in targets
        for array in [*arrays, *(other for other in targets if other is not target)]
    )


def _are_identical(one: np.ndarray, other: np.ndarray) -> bool:
    def place(array: np.ndarray) -> tuple[Any, ...]:
        return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype

    return place(one) == place(other)


# --- independent rows ------------------------------------------------------------------------------------------------


def apply_along(
    context: BlockContext, function: Callable[[np.ndarray], np.ndarray], array: np.ndarray, axes: Sequence[int]
) -> Any:
    """Return `function(array)`, which works along `axes` (none of them the first) and keeps all dimensions."""
    depth = min(axes, default=array.ndim)
    if depth == 0 or not can_be_divided(array.shape, [array]):
        return None
    result: BlockWriter | None = None
    for key in iterate_blocks(array.shape, [array], depth):
        found = function(array[key])
        if result is None:
            result = context.open_writer((*array.shape[:depth], *found.shape[depth:]), found)
        result.add(found)
        context.mark_used([array[key]])
    assert result is not None
    return result.finish()


# --- sums, maxima and the like ---------------------------------------------------------------------------------------

_EXACT = ("maximum", "minimum", "fmax", "fmin", "logical_or", "logical_and", "bitwise_or", "bitwise_and")


def reduce_blocks(
    context: BlockContext, ufunc: np.ufunc, array: np.ndarray, axes: tuple[int, ...], *, keepdims: bool, **options: Any
) -> Any:
    """Return `ufunc.reduce(array, axes)`."""
    if not axes or not can_be_divided(array.shape, [array]):
        return None
    wanted = options.get("dtype")
    rounds = array.dtype.kind not in "biu" or (wanted is not None and np.dtype(wanted).kind not in "biu")
    if 0 not in axes:
        found = apply_along(context, lambda block: ufunc.reduce(block, axes, keepdims=True, **options), array, axes)
    elif ufunc.__name__ in _EXACT or (ufunc.__name__ in ("add", "multiply") and not rounds):
        found = _fold_blocks(context, ufunc, array, axes, options)
        if rounds and (np.isnan(found) | (found == 0)).any():
            return None  # the result depends on the order of zeros or NaNs
    else:
        return None
    if found is None or keepdims:
        return found
    shape = tuple(length for axis, length in enumerate(array.shape) if axis not in axes)
    return found.reshape(shape)[()]


def _fold_blocks(
    context: BlockContext, ufunc: np.ufunc, array: np.ndarray, axes: tuple[int, ...], options: dict[str, Any]
) -> Any:
    result: Any = None
    for key in iterate_blocks(array.shape, [array], 1):
        found = ufunc.reduce(array[key], axes, keepdims=True, **options)
        result = found if result is None else ufunc(result, found)
        options = {name: value for name, value in options.items() if name != "initial"}  # applies once
        context.mark_used([array[key]])
    return result
