"""An array that is stored in a file, and is processed block by block.

It is a `numpy.ndarray` in every respect: functions that know nothing of files accept it. Where numpy offers a hook
(operators, reductions, `argmax`, indexing, `np.where`, ...) the work is done on a few megabytes at a time, and a
result that is too large becomes such an array too. Everything else runs as on any array, and its pages are released
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from . import array_blocks, selection
from .array_blocks import BlockContext
from .scratch_file import Scratch, ScratchFile


class SpilledArray(np.ndarray):
    """A numpy array whose elements are in a temporary file; the file exists as long as an array uses it."""

    file: ScratchFile | None  # None: the elements are in memory

    def __array_finalize__(self, origin: Any) -> None:
        file = getattr(origin, "file", None)
        self.file = file if file is not None and file.holds(self) else None

    # ---- operators and functions ---------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", None)
        files = _collect_files((*inputs, *(out or ())))
        given = [_to_plain(one) for one in inputs]
        into = None if out is None else tuple(_to_plain(one) for one in out)
        result = _compute_in_blocks(ufunc, method, given, into, options, _build_context(files)) if files else None
        if result is None:
            more = {} if into is None else {"out": into}
            result = getattr(ufunc, method)(*given, **options, **more)
            _mark_used((*inputs, *(out or ())))
        if out is None:
            return result
        results = result if isinstance(result, tuple) else (result,)
        given_or_made = tuple(made if own is None else own for own, made in zip(out, results, strict=True))
        return given_or_made[0] if len(given_or_made) == 1 else given_or_made

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        special = _FUNCTIONS.get(function)
        result = None if special is None else special(*args, **options)
        if result is None:
            result = super().__array_function__(function, types, args, options)
            _mark_used(_flatten(args))
        return _unwrap_in_memory(result)

    # ---- elements and parts --------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        if self.file is None or not selection.is_advanced(key):
            return _unwrap_in_memory(super().__getitem__(key))
        files, plain, plain_key = _collect_files(_flatten([self, key])), _to_plain(self), _convert_key(key)
        result = selection.select(_build_context(files), plain, plain_key)
        if result is None:
            result = plain[plain_key]
            _mark_used(_flatten([self, key]))
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        files, plain = _collect_files(_flatten([self, key, value])), _to_plain(self)
        if not files or not selection.assign(_build_context(files), plain, _convert_key(key), _to_plain(value)):
            plain[_convert_key(key)] = _to_plain(value)
            _mark_used(_flatten([self, key, value]))

    def __iter__(self) -> Iterator[Any]:
        for block in self._iterate_rows(None):
            yield from block

    # ---- methods that numpy does not route through the above -----------------------------------------

    def argmax(self, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:  # type: ignore[override]
        return self._find_along("argmax", axis, out, keepdims=keepdims)

    def argmin(self, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:  # type: ignore[override]
        return self._find_along("argmin", axis, out, keepdims=keepdims)

    def _find_along(self, name: str, axis: Any, out: Any, *, keepdims: bool) -> Any:
        def whole(array: np.ndarray) -> Any:
            return getattr(array, name)(axis, out, keepdims=keepdims)

        if axis is None or out is not None:
            return self._apply_whole(whole)
        axes = self._list_axes(axis)
        result = self._apply_along(lambda block: getattr(block, name)(axes[0], keepdims=True), axes)
        if result is None:
            return self._apply_whole(whole)
        return result if keepdims else result.reshape(np.delete(result.shape, axes[0]))[()]

    def mean(self, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        return _unwrap_in_memory(super().mean(*args, **options))

    def std(self, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        return _unwrap_in_memory(super().std(*args, **options))

    def var(self, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        return _unwrap_in_memory(super().var(*args, **options))

    def sort(self, axis: Any = -1, *args: Any, **options: Any) -> None:  # type: ignore[override]
        for block in self._iterate_rows(axis):
            block.sort(axis, *args, **options)

    def partition(self, kth: Any, axis: Any = -1, *args: Any, **options: Any) -> None:  # type: ignore[override]
        for block in self._iterate_rows(axis):
            block.partition(kth, axis, *args, **options)

    def argsort(self, axis: Any = -1, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        return self._apply_by_row(lambda array: array.argsort(axis, *args, **options), axis)

    def argpartition(self, kth: Any, axis: Any = -1, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        return self._apply_by_row(lambda array: array.argpartition(kth, axis, *args, **options), axis)

    def astype(
        self, dtype: Any, order: Any = "K", casting: Any = "unsafe", subok: Any = True, copy: Any = True
    ) -> Any:  # type: ignore[override]
        if np.dtype(dtype) == self.dtype and not copy and order in ("K", "C"):
            return self
        result = None
        if order in ("K", "C") and not np.dtype(dtype).hasobject:
            result = self._apply_along(lambda block: block.astype(dtype, casting=casting), ())
        return self._apply_whole(lambda a: a.astype(dtype, order, casting, subok, copy)) if result is None else result

    def copy(self, order: Any = "C") -> Any:  # type: ignore[override]
        result = self._apply_along(lambda block: block, ()) if order in ("K", "C", "A") else None
        return self._apply_whole(lambda array: array.copy(order)) if result is None else result

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def reshape(self, *shape: Any, order: Any = "C", **options: Any) -> Any:  # type: ignore[override]
        if (
            self.file is not None
            and order == "C"
            and not options
            and not _can_reshape_in_place(_to_plain(self), shape)
        ):
            whole = self.copy()  # numpy copies too, but in memory
            return whole.reshape(*shape)
        return _unwrap_in_memory(super().reshape(*shape, order=order, **options))

    def ravel(self, order: Any = "C") -> Any:  # type: ignore[override]
        return self.reshape(-1) if order == "C" else _unwrap_in_memory(super().ravel(order))

    def flatten(self, order: Any = "C") -> Any:  # type: ignore[override]
        return self.copy().reshape(-1) if order == "C" else _unwrap_in_memory(super().flatten(order))

    def tolist(self) -> Any:
        if self.file is None or self.ndim == 0:
            return _to_plain(self).tolist()
        return [row for block in self._iterate_rows(None) for row in block.tolist()]

    # ---- leaving the file ----------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> Any:  # a pickled copy has no file
        return _to_plain(self).__reduce_ex__(protocol)

    def __reduce__(self) -> Any:
        return _to_plain(self).__reduce__()

    def __repr__(self) -> str:
        return repr(_to_plain(self))

    # ---- helpers --------------------------------------------------------------------------------------

    def _list_axes(self, axis: Any) -> tuple[int, ...]:
        return _normalize_axes(axis, self.ndim)

    def _apply_along(self, function: Callable[[np.ndarray], np.ndarray], axes: Sequence[int]) -> Any:
        if self.file is None:
            return None
        return array_blocks.apply_along(_build_context([self.file]), function, _to_plain(self), axes)

    def _apply_whole(self, function: Callable[[np.ndarray], Any]) -> Any:
        result = function(_to_plain(self))
        _mark_used([self])
        return result

    def _apply_by_row(self, function: Callable[[np.ndarray], Any], axis: Any) -> Any:
        result = None if axis is None else self._apply_along(function, self._list_axes(axis))
        return self._apply_whole(function) if result is None else result

    def _iterate_rows(self, axis: int | None) -> Iterator[np.ndarray]:
        """Yield blocks that are whole along `axis`, one after the other; with None, any blocks will do."""
        plain = _to_plain(self)
        undivided = 0 in self.shape or (axis is not None and self._list_axes(axis) == (0,))
        if self.file is None or undivided:
            yield plain
            _mark_used([self])
            return
        for key in array_blocks.iterate_blocks(self.shape, [plain], 1):
            yield plain[key]
            self.file.mark_used(plain[key])


class ArrayWriter:
    """An array that is written from front to back: in memory if it fits, else in a file."""

    def __init__(self, scratch: Scratch, shape: tuple[int, ...], like: np.ndarray, in_use: int = 0) -> None:
        self._shape, self._dtype, self._end = shape, like.dtype, 0
        size = int(np.prod(shape, dtype=np.int64)) * like.itemsize
        self._file = None if size == 0 or scratch.fits(size + in_use) else ScratchFile(scratch, size)
        self._array = np.empty_like(like, shape=shape if self._file is None else (0,) * len(shape))
        # Elements come in C order, also where numpy would store them in another one.
        self._flat: Any = self._array.reshape(-1) if self._array.flags.c_contiguous else self._array.flat

    def add(self, block: np.ndarray) -> None:
        if self._file is not None:
            self._file.append(block)
        else:
            self._flat[self._end : self._end + block.size] = block.reshape(-1)
            self._end += block.size

    def finish(self) -> np.ndarray:
        return self._array if self._file is None else open_spilled(self._file, self._shape, self._dtype)


def open_spilled(file: ScratchFile, shape: tuple[int, ...], dtype: Any, offset: int = 0) -> SpilledArray:
    """Return the array that was written to a file."""
    array = SpilledArray(shape, dtype, file.map_memory(), offset)
    array.file = file
    return array


# --- numpy's functions that work on several arrays -------------------------------------------------------------------


def _concatenate(arrays: Any, axis: Any = 0, out: Any = None, **options: Any) -> Any:
    arrays = list(arrays)
    shapes = {array.shape for array in arrays if isinstance(array, np.ndarray)}
    files, plain = _collect_files(arrays), [_to_plain(array) for array in arrays]
    if out is not None or options or axis is None or not files or not all(type(one) is np.ndarray for one in plain):
        return None
    if len({len(shape) for shape in shapes}) != 1 or not array_blocks.can_be_divided(plain[0].shape, plain):
        return None
    axes = _normalize_axes(axis, plain[0].ndim)
    others = {tuple(length for place, length in enumerate(shape) if place not in axes) for shape in shapes}
    if len(others) != 1:
        return None  # numpy raises the error
    context, shape = _build_context(files), list(plain[0].shape)
    shape[axes[0]] = sum(array.shape[axes[0]] for array in plain)
    dtype = np.result_type(*(array.dtype for array in plain))
    result = context.open_writer(tuple(shape), np.empty(0, dtype))
    together = [[array] for array in plain] if axes == (0,) else [plain]
    for group in together:
        for key in array_blocks.iterate_blocks(group[0].shape, group, 1) if 0 not in group[0].shape else ():
            given = [array[key] for array in group]
            result.add(np.concatenate(given, axes[0]).astype(dtype, copy=False))
            context.mark_used(given)
    return result.finish()


def _where(condition: Any, *choices: Any) -> Any:
    operands = [_to_plain(one) for one in (condition, *choices)]
    files = _collect_files((condition, *choices))
    if len(choices) != 2 or not files or not all(_is_operand(one) for one in operands):
        return None
    return array_blocks.apply_elementwise(_build_context(files), np.where, operands)


def _count_nonzero(a: Any, axis: Any = None, **options: Any) -> Any:
    if axis is not None or options or not isinstance(a, SpilledArray) or a.ndim == 0:
        return None
    return np.intp(sum(int(np.count_nonzero(block)) for block in a._iterate_rows(None)))


def _copy(a: Any, order: Any = "K", subok: Any = False) -> Any:
    return a.copy(order)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.concatenate: _concatenate,
    np.where: _where,
    np.count_nonzero: _count_nonzero,
    np.copy: _copy,
}


# --- helpers ---------------------------------------------------------------------------------------------------------


def _compute_in_blocks(
    ufunc: np.ufunc,
    method: str,
    given: list[Any],
    out: tuple[Any, ...] | None,
    options: dict[str, Any],
    context: BlockContext,
) -> Any:
    """Return the result of a ufunc, computed block by block; None if it cannot be divided."""
    if method == "__call__" and ufunc.signature is None:
        if not set(options) <= {"dtype", "casting"} or not all(map(_is_operand, (*given, *(out or ())))):
            return None
        return array_blocks.apply_elementwise(context, ufunc, given, out, **options)
    if method == "reduce" and out is None:
        if options.get("where", True) is not True or not isinstance(given[0], np.ndarray):
            return None
        kept = {name: options[name] for name in ("dtype", "initial") if options.get(name) is not None}
        if "initial" in options and options["initial"] is None:
            return None
        axes = _normalize_axes(options.get("axis", 0), given[0].ndim)
        return array_blocks.reduce_blocks(
            context, ufunc, given[0], axes, keepdims=bool(options.get("keepdims")), **kept
        )
    return None


def _is_operand(value: Any) -> bool:
    """Return whether it is an array or a number."""
    return type(value) is np.ndarray or isinstance(value, (bool, int, float, np.generic))


def _normalize_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return axes counted from the first; all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    for one in axes:
        if not -ndim <= one < ndim:
            raise np.exceptions.AxisError(one, ndim)
    return tuple(sorted(one % ndim for one in axes))


def _to_plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, SpilledArray) else value


def _convert_key(key: Any) -> Any:
    return tuple(_to_plain(one) for one in key) if isinstance(key, tuple) else _to_plain(key)


def _collect_files(values: Iterable[Any]) -> list[ScratchFile]:
    found = (value.file for value in values if isinstance(value, SpilledArray))
    return list({id(file): file for file in found if file is not None}.values())


def _flatten(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from _flatten(value) if isinstance(value, (list, tuple)) else (value,)


def _build_context(files: Sequence[ScratchFile]) -> BlockContext:
    def mark_used(arrays: Iterable[Any]) -> None:
        for array in arrays:
            for file in files:
                if isinstance(array, np.ndarray) and file.holds(array):
                    file.mark_used(array)

    return BlockContext(
        open_writer=lambda shape, like: ArrayWriter(files[0].scratch, shape, like), mark_used=mark_used
    )


def _mark_used(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, SpilledArray) and value.file is not None:
            value.file.mark_used(value)


def _unwrap_in_memory(result: Any) -> Any:
    """Turn arrays that numpy has created in memory into ordinary ones."""
    if isinstance(result, SpilledArray):
        return result if result.file is not None else _to_plain(result)
    if type(result) in (list, tuple):
        return type(result)(_unwrap_in_memory(one) for one in result)
    return result


def _can_reshape_in_place(array: np.ndarray, shape: Any) -> bool:
    """Return whether numpy can change the shape of an array without copying its elements."""
    if array.flags.c_contiguous:
        return True
    wanted = shape[0] if len(shape) == 1 else shape
    try:
        array.reshape(wanted, copy=False)
    except ValueError:
        return False
    except TypeError:  # numpy before 2.1
        view = array.view()
        try:
            view.shape = wanted
        except AttributeError:
            return False
    return True
