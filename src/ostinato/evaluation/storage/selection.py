"""Selection from and assignment to a large array by mask or index, block by block.

As in `blocks`, a result of None (or False) means that the work has to be done at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .array_blocks import BlockContext, can_be_divided, get_part, is_in_order, iterate_blocks
from .scratch_file import BLOCK

_FEW = 256  # indices: even if each is on a different page, these are few pages


def is_advanced(key: Any) -> bool:
    """Return whether a key selects a copy of elements, rather than a view."""
    entries = key if isinstance(key, tuple) else (key,)
    return any(isinstance(entry, (list, np.ndarray)) for entry in entries)


def select(context: BlockContext, array: np.ndarray, key: Any) -> Any:
    """Return `array[key]`, where the key is advanced."""
    entries = _entries(key, array.ndim)
    if entries is None or not can_be_divided(array.shape, [array]):
        return None
    first, rest = entries[0], entries[1:]
    if _is_mask(first):
        return _select_by_mask(context, array, first) if not rest and _covers(first, array) else None
    if isinstance(first, np.ndarray):
        advanced = [np.asarray(entry) for entry in entries if not isinstance(entry, slice)]
        if any(map(_is_mask, advanced)) or any(entry != slice(None) for entry in entries[len(advanced) :]):
            return None
        return _select_by_index(context, array, advanced)
    if isinstance(first, slice) and _are_adjacent(rest):
        return _select_in_rows(context, array[first], rest)
    return None


def assign(context: BlockContext, array: np.ndarray, key: Any, value: Any) -> bool:
    """Set `array[key] = value`; return whether it was done."""
    number = isinstance(value, (bool, int, float, np.generic))
    if is_advanced(key):
        mask: Any = key[0] if isinstance(key, tuple) and len(key) == 1 else key
        if not number or not _is_mask(mask) or not _covers(mask, array) or not can_be_divided(array.shape, [array]):
            return False
        for block in iterate_blocks(array.shape, [array, mask], min(mask.ndim, array.ndim)):
            array[block][mask[block]] = value
            context.mark_used([array[block], mask[block]])
        return True
    target = array[key]
    if not isinstance(target, np.ndarray) or not can_be_divided(target.shape, [target]):
        return False
    source = value if number else np.asarray(value)
    if isinstance(source, np.ndarray) and (np.may_share_memory(source, target) or source.ndim > target.ndim):
        return False
    arrays = [target, source] if isinstance(source, np.ndarray) else [target]
    for block in iterate_blocks(target.shape, arrays):
        here = get_part(source, block, target.shape) if isinstance(source, np.ndarray) else source
        target[block] = here
        context.mark_used([target[block], here])
    return True


def _entries(key: Any, ndim: int) -> list[Any] | None:
    """Return the key by dimension, with lists as arrays; None if it adds dimensions."""
    entries = [np.asarray(entry) if isinstance(entry, list) else entry for entry in _as_tuple(key)]
    if any(entry is None for entry in entries):
        return None
    if any(isinstance(entry, np.ndarray) and entry.dtype.kind not in "biu" for entry in entries):
        return None
    dots = [place for place, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1:
        return None
    if dots:
        taken = sum(entry.ndim if _is_mask(entry) else 1 for entry in entries if entry is not Ellipsis)
        entries[dots[0] : dots[0] + 1] = [slice(None)] * (ndim - taken)
    return entries or None


def _as_tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _is_mask(entry: Any) -> bool:
    return isinstance(entry, np.ndarray) and entry.dtype == bool


def _covers(mask: np.ndarray, array: np.ndarray) -> bool:
    return mask.ndim > 0 and mask.shape == array.shape[: mask.ndim]


def _are_adjacent(entries: list[Any]) -> bool:
    """Return whether the advanced entries are adjacent, so that the result has their dimensions in their place."""
    places = [place for place, entry in enumerate(entries) if not isinstance(entry, slice)]
    return places == list(range(places[0], places[-1] + 1)) if places else False


def _select_by_mask(context: BlockContext, array: np.ndarray, mask: np.ndarray) -> Any:
    keys = list(iterate_blocks(array.shape, [array, mask], mask.ndim))
    count = 0
    for key in keys:
        count += int(np.count_nonzero(mask[key]))
        context.mark_used([mask[key]])
    result = context.open_writer((count, *array.shape[mask.ndim :]), np.empty(0, array.dtype))
    for key in keys:
        result.add(array[key][mask[key]])
        context.mark_used([array[key], mask[key]])
    return result.finish()


def _select_by_index(context: BlockContext, array: np.ndarray, indices: list[np.ndarray]) -> Any:
    """Select with index arrays for the first dimensions, and the others whole."""
    shape = np.broadcast_shapes(*(index.shape for index in indices))
    if not shape or 0 in shape or not all(map(is_in_order, indices)):
        return None
    inner = array.shape[len(indices) :]
    size = int(np.prod(inner, dtype=np.int64)) * array.itemsize * int(np.prod(shape[1:], dtype=np.int64))
    result = context.open_writer((*shape, *inner), np.empty(0, array.dtype))
    waiting = [slice(0, shape[0])]
    while waiting:
        rows = waiting.pop()
        here = [get_part(index, (rows,), shape) for index in indices]
        count = rows.stop - rows.start
        if count > 1 and (count * size > BLOCK or (count > _FEW and _measure_reach(array, here[0]) > 4 * BLOCK)):
            middle = rows.start + count // 2
            waiting += [slice(middle, rows.stop), slice(rows.start, middle)]
            continue
        result.add(array[tuple(here)])
        touched = here[0] % len(array)
        context.mark_used([array[int(touched.min()) : int(touched.max()) + 1], *here])
    return result.finish()


def _measure_reach(array: np.ndarray, index: np.ndarray) -> int:
    """Return how far apart in memory the rows of an index array are."""
    places = index % len(array)
    return int(places.max() - places.min() + 1) * abs(array.strides[0])


def _select_in_rows(context: BlockContext, array: np.ndarray, rest: list[Any]) -> Any:
    """Select the same advanced key in every row."""
    if not can_be_divided(array.shape, [array]):
        return None
    like = array[:2][(slice(None), *rest)]  # not always in C order, which a single row would not show
    result = context.open_writer((array.shape[0], *like.shape[1:]), like)
    for key in iterate_blocks(array.shape, [array], 1):
        result.add(array[key][(slice(None), *rest)])
        context.mark_used([array[key]])
    return result.finish()
