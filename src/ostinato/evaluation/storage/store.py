"""The data that an evaluation keeps, batch by batch: named trees of arrays, within a memory budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.notices import note_once
from ...core.tree import concatenate
from .disk_array import SpilledArray
from .forecast import Forecast, forecast
from .row_buffer import Column, Piece, join
from .scratch_file import Scratch, ScratchDirectory, format_bytes

Path = tuple[Any, ...]


class RowStore:
    """Rows of predictions, labels, inputs and losses, each under its name.

    >>> store = RowStore()
    >>> store.add({"labels": np.array([1, 2])}, rows=2)
    >>> store.add({"labels": np.array([3])}, rows=1)
    >>> store.join("labels")
    array([1, 2, 3])

    While everything fits into memory the results are ordinary arrays; else the largest are in a file (`SpilledArray`).
    `rows` is the final number of rows, if it is known.
    """

    def __init__(self, scratch: Scratch | None = None, rows: int | None = None) -> None:
        self.forecast: Forecast | None = None  # after the first batch, if the number of rows is known
        self._scratch = scratch or Scratch()
        self._expected_rows = rows
        self._rows = 0
        self._columns: dict[Path, Column] = {}
        self._batches: dict[str, list[Any]] = {}
        self._joined_bytes = 0  # bytes in memory that were joined

    def add(self, parts: Mapping[str, Any], rows: int) -> None:
        """Keep the parts of one batch of rows; parts that are None are left out."""
        parts = {name: tree for name, tree in parts.items() if tree is not None}
        if self._rows == 0 and rows and self._expected_rows:
            self.forecast = forecast(parts, rows, max(rows, self._expected_rows), self._scratch.memory)
        self._rows += rows
        for name, tree in parts.items():
            self._batches.setdefault(name, []).append(_build_nodes(tree, self._keep, (name,)))
        self._make_room()

    def _keep(self, leaf: Any, path: Path) -> Any:
        if not isinstance(leaf, np.ndarray) or leaf.dtype.hasobject:
            return leaf
        column = self._columns.setdefault(path, Column(self._scratch))
        whole = self._estimate_size(column.size + leaf.nbytes)
        if not self._scratch.fits(whole):
            self._spill(column, whole)
        return column.add(leaf, whole)

    def _estimate_size(self, size: int) -> int:
        """Return the size after the last row of what has `size` bytes now."""
        return int(size * max(1.0, (self._expected_rows or 0) / max(1, self._rows)))

    def _make_room(self) -> None:
        """Move the largest columns to files until the rest will fit."""
        while not self._scratch.fits(self._estimate_size(self._measure_memory())):
            column = max(self._columns.values(), key=lambda column: column.in_memory)
            self._spill(column, self._estimate_size(column.size))

    def _spill(self, column: Column, expected: int) -> None:
        if (place := column.spill(expected)) is not None:
            self._report_file(place, expected)

    def _measure_memory(self) -> int:
        return self._joined_bytes + sum(column.in_memory for column in self._columns.values())

    def _report_file(self, place: ScratchDirectory, expected: int) -> None:
        kept = self.forecast or f"evaluation keeps more than {format_bytes(self._scratch.memory or 0)}"
        remark = f"{kept}: in a file under {place.directory}"
        if place.in_memory:
            remark += ", which is memory (set TMPDIR to a directory on a disk)"
        elif place.free < expected:
            remark += f", where {format_bytes(place.free)} are free"
        advice = "preprocess_logits_for_metrics=... or a metric that is updated batch by batch would need none"
        note_once(f"{remark}; {advice}", key="evaluation keeps rows in a file")

    def join(self, name: str, padding: float = -100) -> Any:
        """Return the rows of all batches, in the containers of the first; a ragged second dimension is padded.

        Return None if there are none. Rows can be taken once.
        """

        def join_leaves(leaves: Sequence[Any]) -> Any:
            if not all(isinstance(leaf, Piece) for leaf in leaves):
                return concatenate([_load(leaf) for leaf in leaves], padding_index=padding)
            column = leaves[0].column
            array = join(self._scratch, leaves, padding, self._measure_memory() - column.in_memory)
            in_memory = 0 if isinstance(array, SpilledArray) else array.nbytes
            self._joined_bytes += in_memory - column.in_memory  # the column is counted until everything is joined
            return array

        self._finish_columns(name)
        batches = self._batches.pop(name, [])
        joined = _join_trees(batches, join_leaves) if batches else None
        self._drop_columns(name)
        return joined

    def batches(self, name: str) -> list[Any] | None:
        """Return the rows batch by batch, unchanged; None if there are none. Rows can be taken once."""
        self._finish_columns(name)
        batches = [_rebuild_tree(batch, _load) for batch in self._batches.pop(name, [])]
        self._drop_columns(name)
        return batches or None

    def _finish_columns(self, name: str) -> None:
        """Move data in a file back to memory if it fits."""
        columns = [column for path, column in self._columns.items() if path[0] == name]
        for column in sorted(columns, key=lambda column: column.size):
            column.finish(fits=self._scratch.fits(self._measure_memory() + column.size - column.in_memory))

    def _drop_columns(self, name: str) -> None:
        for path in [path for path in self._columns if path[0] == name]:
            self._joined_bytes += self._columns.pop(path).in_memory


# --- containers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Node:
    """A container: its kind, its keys if it has any, its children."""

    kind: Any
    keys: tuple[Any, ...] | None
    children: tuple[Any, ...]

    def build(self, children: Sequence[Any]) -> Any:
        if self.keys is not None:
            return self.kind(dict(zip(self.keys, children, strict=True)))
        return self.kind(*children) if getattr(self.kind, "_fields", None) is not None else self.kind(children)


def _build_nodes(tree: Any, keep: Callable[[Any, Path], Any], path: Path) -> Any:
    if isinstance(tree, Mapping):
        return _Node(type(tree), tuple(tree), tuple(_build_nodes(c, keep, (*path, k)) for k, c in tree.items()))
    if isinstance(tree, (list, tuple)):
        return _Node(type(tree), None, tuple(_build_nodes(c, keep, (*path, i)) for i, c in enumerate(tree)))
    return keep(tree, path)


def _rebuild_tree(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    if isinstance(tree, _Node):
        return tree.build([_rebuild_tree(child, leaf) for child in tree.children])
    return leaf(tree)


def _join_trees(trees: Sequence[Any], join_leaves: Callable[[Sequence[Any]], Any]) -> Any:
    first = trees[0]
    if not isinstance(first, _Node):
        if any(isinstance(tree, _Node) for tree in trees):
            raise ValueError("some batches have containers where others have arrays")
        return join_leaves(trees)
    return first.build([_join_trees(column, join_leaves) for column in _align_children(first, trees)])


def _align_children(first: _Node, trees: Sequence[Any]) -> Iterator[list[Any]]:
    for tree in trees:
        if not isinstance(tree, _Node) or (tree.keys is None) != (first.keys is None):
            raise ValueError("some batches have containers where others have arrays")
        if len(tree.children) != len(first.children) or set(tree.keys or ()) != set(first.keys or ()):
            raise ValueError("not all batches have the same parts")
    for place, key in enumerate(first.keys or first.children):
        places = (place if tree.keys is None else tree.keys.index(key) for tree in trees)
        yield [tree.children[here] for tree, here in zip(trees, places, strict=True)]


def _load(leaf: Any) -> Any:
    return leaf.array() if isinstance(leaf, Piece) else leaf
