"""An array in a file gives, bit for bit, what the same array in memory gives."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ostinato.evaluation.storage import array_blocks, row_buffer, selection
from ostinato.evaluation.storage.disk_array import SpilledArray, open_spilled
from ostinato.evaluation.storage.scratch_file import Scratch, ScratchFile

metrics = pytest.importorskip("sklearn.metrics")

Operation = Callable[[np.ndarray], Any]


def spill(array: np.ndarray, memory: int = 0) -> SpilledArray:
    """The same array, in a file."""
    file = ScratchFile(Scratch(memory), array.nbytes)
    file.append(array)
    return open_spilled(file, array.shape, array.dtype)


def softmax(x: np.ndarray) -> np.ndarray:
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def in_place(change: Callable[[np.ndarray], Any]) -> Operation:
    """What an array is after it was changed."""

    def changed(x: np.ndarray) -> np.ndarray:
        change(x)
        return x

    return changed


def set_where(x: np.ndarray) -> None:
    x[x < 1] = 3


def set_rows(x: np.ndarray) -> None:
    x[1:] = 7
    x[..., :1] = x[..., -1:].copy()


def shift_down(x: np.ndarray) -> None:
    x[1:] = x[:-1]


ELEMENTWISE: dict[str, Operation] = {
    "plus a number": lambda x: x + 1,
    "number minus it": lambda x: 2.5 - x,
    "times itself": lambda x: x * x,
    "plus its rows": lambda x: x + x[:1],
    "divided": lambda x: x / 3,
    "compared": lambda x: x == x.flat[0],
    "compared with its last": lambda x: x > x[..., -1:],
    "negative": lambda x: -x.astype(np.float32),
    "exponential": lambda x: np.exp(x.astype(np.float32)),
    "two results": lambda x: np.modf(x.astype(np.float64))[1],
    "into": lambda x: np.add(x, 1, out=np.empty(x.shape, np.float64)),
    "clipped": lambda x: np.clip(x, 0, 2),
    "finite": np.isfinite,
    "where": lambda x: np.where(x > 0, x, 0),
    "where, spread": lambda x: np.where(np.broadcast_to(x[:, :1] > 0, x.shape), x, 0) + 1,
    "spread": lambda x: np.broadcast_to(x[:, :1], x.shape) * 2,
    "where of three": lambda x: np.where(x[:1] > 0, x, x[..., :1]),
    "softmax": softmax,
    "as float": lambda x: x.astype(np.float32),
    "as it is": lambda x: x.astype(x.dtype, copy=False),
    "copied": lambda x: x.copy(),
    "numpy's copy": np.copy,
    "deep copy": copy.deepcopy,
    "there and back": lambda x: pickle.loads(pickle.dumps(x)),
}
REDUCTIONS: dict[str, Operation] = {
    f"{name} over {axis}": (lambda x, name=name, axis=axis: getattr(x, name)(axis=axis))
    for name in ("argmax", "argmin", "max", "min", "sum", "mean", "std", "any", "all", "prod")
    for axis in (None, 0, -1, 1)
}
REDUCTIONS |= {
    "max, kept": lambda x: x.max(-1, keepdims=True),
    "argmax, kept": lambda x: np.argmax(x, axis=-1, keepdims=True),
    "sum over two": lambda x: x.sum(axis=(0, 1)),
    "sum over the last two": lambda x: x.sum(axis=(-1, -2)),
    "sum as double": lambda x: x.sum(-1, dtype=np.float64),
    "max from": lambda x: x.max(initial=2),
    "numpy's mean": lambda x: np.mean(x, axis=-1),
    "numpy's median": lambda x: np.median(x),
    "nonzero": lambda x: np.count_nonzero(a=x),
    "cumulated": lambda x: x.cumsum(-1),
    "share of equal": lambda x: (x == x[..., :1]).mean(),
    "root of squares": lambda x: np.sqrt(((x - x[..., :1]) ** 2).mean()) if x.dtype != bool else 0,
}
SELECTIONS: dict[str, Operation] = {
    "a row": lambda x: x[0],
    "an element": lambda x: x[(0,) * x.ndim],
    "every other": lambda x: x[::2],
    "all but the last": lambda x: x[..., :-1],
    "by mask": lambda x: x[x > 0],
    "rows by mask": lambda x: x[x.reshape(len(x), -1)[:, 0] > 0],
    "rows by number": lambda x: x[np.arange(len(x))[::-1]],
    "rows by list": lambda x: x[[0, -1, 0]],
    "one of each row": lambda x: x[np.arange(len(x)), 0],
    "columns": lambda x: x[:, [0, -1]],
    "last columns": lambda x: x[..., [0, 0, -1]],
    "columns by mask": lambda x: x[:, np.arange(x.shape[1]) % 2 == 0],
    "apart": lambda x: x[[0], :, [0]],
    "with a new dimension": lambda x: x[:, None],
    "and by list": lambda x: x[None, [0]],
    "along": lambda x: np.take_along_axis(x, x.argmax(-1)[..., None], axis=-1),
    "taken": lambda x: np.take(x, [0, -1], axis=0),
    "set where": in_place(set_where),
    "set rows": in_place(set_rows),
    "moved": in_place(shift_down),
    "added to": in_place(lambda x: np.add(x, x, out=x)),
    "sorted in place": in_place(lambda x: x.sort()),
    "by a tensor": lambda x: x[torch.arange(len(x)) % 2 == 0],
}
SHAPES: dict[str, Operation] = {
    "transposed": lambda x: x.T + x.T,
    "flat": lambda x: x.reshape(-1),
    "rows together": lambda x: x[:, :-1].reshape(-1, x.shape[-1]) if x.ndim > 2 else x.reshape(-1),
    "flattened": lambda x: x.flatten(),
    "raveled": lambda x: np.ravel(x),
    "swapped": lambda x: np.swapaxes(x, 0, -1).copy(),
    "squeezed": lambda x: np.squeeze(x[:1]),
    "expanded": lambda x: np.expand_dims(x, 1),
    "together": lambda x: np.concatenate([x, x[:2]]),
    "side by side": lambda x: np.concatenate([x, x], axis=-1),
    "of two kinds": lambda x: np.concatenate([x, x.astype(np.float64)]),
    "stacked": lambda x: np.stack([x, x]),
    "halves": lambda x: np.array_split(x, 2)[0],
    "sorted": lambda x: np.sort(x, axis=-1),
    "sorted down": lambda x: np.sort(x, axis=0),
    "ranked": lambda x: np.argsort(x, axis=-1, kind="stable"),
    "best": lambda x: np.sort(np.partition(x, -1, axis=-1)[..., -1:]),
    "list": lambda x: np.array(x.tolist()),
    "row by row": lambda x: np.array([row for row in x]),  # noqa: C416
    "tensor": lambda x: torch.from_numpy(np.ascontiguousarray(x)).amax(-1).numpy() if x.dtype != bool else x,
    "unique": np.unique,
    "matrix": lambda x: x.astype(np.float32) @ np.ones((x.shape[-1], 2), np.float32),
    "products": lambda x: np.einsum("...i->...", x),
}
VIEWS: dict[str, Operation] = {
    "whole": lambda x: x,
    "shorter": lambda x: x[:, :-1],
    "part": lambda x: x[1:, ..., 1:],
    "steps": lambda x: x[::2],
    "backwards": lambda x: x[..., ::-1],
    "turned": lambda x: x.T,
}


@st.composite
def arrays(draw: Any) -> np.ndarray:
    dtype = draw(st.sampled_from(["float32", "float64", "float16", "int64", "int32", "uint8", "bool"]))
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=4, min_side=2, max_side=6))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    values = np.round(rng.normal(size=shape) * 3, draw(st.sampled_from([0, 5])))
    if dtype.startswith("float") and draw(st.booleans()):
        values.flat[rng.integers(values.size, size=3)] = [np.nan, np.inf, -0.0]
    return (np.abs(values) if dtype == "uint8" else values).astype(dtype)


def result_of(operation: Operation, array: np.ndarray) -> Any:
    try:
        with np.errstate(all="ignore"):
            return operation(array)
    except (ValueError, TypeError, IndexError) as error:
        return type(error)


def assert_same(found: Any, wanted: Any, name: str = "") -> None:
    assert isinstance(found, type) == isinstance(wanted, type), (name, found, wanted)
    if isinstance(wanted, type):
        assert found is wanted
        return
    a, b = np.asarray(found), np.asarray(wanted)
    assert (a.dtype, a.shape) == (b.dtype, b.shape), name
    assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes(), (name, a, b)
    if isinstance(found, SpilledArray):
        assert found.file is not None, "what is in memory is an ordinary array"


@pytest.mark.parametrize("group", [ELEMENTWISE, REDUCTIONS, SELECTIONS, SHAPES], ids=["each", "all", "some", "form"])
@settings(max_examples=10, deadline=None)
@given(
    array=arrays(),
    view=st.sampled_from(sorted(VIEWS)),
    block=st.sampled_from([1, 40, 300, 2**22]),
    memory=st.sampled_from([0, 100, 2**20]),
)
def test_results_are_those_of_memory(
    group: dict[str, Operation], array: np.ndarray, view: str, block: int, memory: int
) -> None:
    with small_blocks(block):
        for name, operation in group.items():
            wanted = result_of(operation, VIEWS[view](array.copy()))
            assert_same(result_of(operation, VIEWS[view](spill(array, memory))), wanted, name)


@contextmanager
def small_blocks(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (array_blocks, selection, row_buffer):
            patch.setattr(module, "BLOCK", size)
        yield


# --------------------------------------------------------------------------- where the order of the work could be seen


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("axis", [1, 2, (1, 2), (0, 2), 0, None])
def test_sums_are_added_in_the_same_order(dtype: str, axis: Any) -> None:
    array = (np.random.default_rng(0).normal(size=(7, 12, 900)) * 0.1).astype(dtype)
    for seen, plain in ((spill(array), array), (spill(array)[:, :-1], array[:, :-1])):
        with small_blocks(4000):
            assert_same(seen.sum(axis), plain.sum(axis))
            assert_same(seen.sum(axis, dtype=np.float64), plain.sum(axis, dtype=np.float64))
            assert_same(seen.sum(axis, keepdims=True), plain.sum(axis, keepdims=True))
            assert_same(seen.mean(axis), plain.mean(axis))
            assert_same(seen.std(axis), plain.std(axis))


def test_long_rows_are_added_in_the_same_order() -> None:
    array = np.random.default_rng(0).normal(size=(5, 20_000)).astype(np.float16)
    with small_blocks(4000):
        assert_same(spill(array).mean(-1), array.mean(-1))


def test_sums_of_a_result_that_numpy_lays_down_otherwise() -> None:
    array = np.random.default_rng(1).normal(size=(20, 30, 70)).astype(np.float32)
    with small_blocks(1000):
        for memory in (0, 10**6):
            turned = spill(array, memory).T
            assert_same((turned * 1.5).sum(), (array.T * 1.5).sum())
            assert_same((turned * 1.5).sum(0), (array.T * 1.5).sum(0))
        chosen = spill(array, 10**6)[:, [3, 5]] * 1.5
        assert_same(chosen.sum(), (array[:, [3, 5]] * 1.5).sum())


def test_which_zero_is_the_largest() -> None:
    chance = np.random.default_rng(2)
    for _ in range(20):
        zeros = np.where(chance.random(500) < 0.5, -0.0, 0.0).astype(np.float32)
        for ufunc in (np.maximum, np.minimum, np.fmax, np.fmin):
            with small_blocks(44):
                assert_same(ufunc.reduce(spill(zeros)), ufunc.reduce(zeros))


def test_what_is_written_may_be_what_is_read() -> None:
    array = np.arange(40.0).reshape(10, 4)
    seen = spill(array)
    with small_blocks(40):
        for x in (array, seen):
            np.add(x[:-1], 1, out=x[1:])
            np.multiply(x, x[0], out=x)
            x[1:] = x[:-1]
            x[:] = x[::-1]
            x -= x.max()
    assert_same(seen, array)


def test_indices_apart_come_first() -> None:
    array = np.arange(120).reshape(2, 3, 4, 5)
    for key in ((slice(None), [0], slice(None), [1, 2, 3]), ([1], slice(None), [0]), (0, slice(None), [1, 2])):
        assert_same(spill(array)[key], array[key])


# -------------------------------------------------------------------------------------------------------- as an array


def test_empty_arrays_and_wrong_shapes_are_as_in_memory() -> None:
    array = np.arange(12.0).reshape(3, 4)
    seen = spill(array)
    assert seen[:0].sum() == 0
    assert seen[:0].reshape(0, 2, 2).shape == (0, 2, 2)
    for wrong in (lambda x: x.reshape(5, 5), lambda x: x[9], lambda x: x.argmax(3), lambda x: x + np.zeros(3)):
        assert result_of(wrong, seen) is result_of(wrong, array)


def test_what_is_written_stays() -> None:
    array = np.arange(3 * 2**20, dtype=np.float32).reshape(3, -1)
    seen = spill(array)
    seen[seen < 100] = -1
    seen[2] += 1
    torch.from_numpy(seen)[1, 5] = 7
    seen.max()  # reads everything and gives the pages back
    array[array < 100] = -1
    array[2] += 1
    array[1, 5] = 7
    assert np.array_equal(seen, array)


def test_it_is_an_ndarray_to_others() -> None:
    rng = np.random.default_rng(3)
    scores, labels = rng.random((40, 3)), rng.integers(3, size=40)
    scores /= scores.sum(-1, keepdims=True)
    seen, seen_labels = spill(scores), spill(labels)
    assert isinstance(seen, np.ndarray)
    assert metrics.accuracy_score(seen_labels, seen.argmax(-1)) == metrics.accuracy_score(labels, scores.argmax(-1))
    assert metrics.f1_score(seen_labels, seen.argmax(-1), average="macro") == metrics.f1_score(
        labels, scores.argmax(-1), average="macro"
    )
    assert metrics.roc_auc_score(seen_labels, seen, multi_class="ovr") == metrics.roc_auc_score(
        labels, scores, multi_class="ovr"
    )
    assert torch.equal(torch.from_numpy(seen), torch.from_numpy(scores))
    assert torch.equal(torch.tensor(seen), torch.tensor(scores))
    assert repr(seen) == repr(scores)
    assert str(seen) == str(scores)


def test_a_copy_elsewhere_needs_no_file() -> None:
    seen = spill(np.arange(6))
    assert type(pickle.loads(pickle.dumps(seen))) is np.ndarray
    assert type(np.array(seen)) is np.ndarray
    assert type(seen + 1) is SpilledArray  # a budget of nothing
    assert type(spill(np.arange(6), memory=100) + 1) is np.ndarray


def test_the_file_lives_as_long_as_a_view() -> None:
    row = spill(np.arange(6).reshape(2, 3))[1]
    tail = torch.from_numpy(row)[1:]
    del row
    assert tail.tolist() == [4, 5]
