"""Rows that are kept batch by batch come back as if they had been kept in memory."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.core.tree import concatenate
from ostinato.evaluation.storage import row_buffer, store
from ostinato.evaluation.storage.disk_array import SpilledArray
from ostinato.evaluation.storage.forecast import forecast
from ostinato.evaluation.storage.row_buffer import ShapeError
from ostinato.evaluation.storage.scratch_file import Scratch, ScratchDirectory
from ostinato.evaluation.storage.store import RowStore

Pair = namedtuple("Pair", ["start", "end"])


def plain(tree: Any) -> Any:
    """Containers and their kinds, dtypes, shapes and bytes."""
    if isinstance(tree, dict):
        return type(tree), [(name, plain(value)) for name, value in tree.items()]
    if isinstance(tree, (list, tuple)):
        return type(tree), [plain(value) for value in tree]
    return tree if tree is None else (tree.dtype, tree.shape, tree.tobytes())


def leaves(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, (dict, list, tuple)):
        return [leaf for child in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves(child)]
    return [tree]


@st.composite
def batches(draw: Any) -> list[tuple[int, Any]]:
    """Trees of one structure and arrays of several kinds, some with widths that differ from batch to batch."""
    kinds = draw(st.lists(st.sampled_from(["float32", "float16", "int64", "bool", "int16"]), min_size=3, max_size=3))
    ranks = draw(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=3, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    build = draw(
        st.sampled_from(
            [
                lambda a, b, c: a,
                lambda a, b, c: (a, b, c),
                lambda a, b, c: {"x": a, "y": [b, (c,)]},
                lambda a, b, c: OrderedDict(u=Pair(a, b), v=c),
            ]
        )
    )
    found = []
    for rows in draw(st.lists(st.integers(0, 4), min_size=1, max_size=5)):
        width = draw(st.integers(0, 4))
        shapes = [(rows, width, 3)[:rank] for rank in ranks]
        found.append((rows, build(*(np.asarray(rng.random(s) * 9, k) for s, k in zip(shapes, kinds, strict=True)))))
    return found


@settings(max_examples=80, deadline=None)
@given(
    batches=batches(),
    memory=st.sampled_from([0, 20, 200, None]),
    known=st.booleans(),
    small=st.booleans(),
)
def test_rows_are_those_of_memory(
    batches: list[tuple[int, Any]], memory: int | None, known: bool, small: bool
) -> None:
    rows = sum(count for count, _ in batches) if known else None
    kept, apart = RowStore(Scratch(memory), rows), RowStore(Scratch(memory), rows)
    for count, tree in batches:
        kept.add({"logits": tree, "labels": None}, count)
        apart.add({"logits": tree}, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_buffer, "BLOCK", 8 if small else 2**22)
        joined = kept.join("logits")
    wanted = concatenate([tree for _, tree in batches])
    assert plain(joined) == plain(wanted)
    assert plain(apart.batches("logits")) == plain([tree for _, tree in batches])
    assert kept.join("labels") is None
    assert kept.batches("inputs") is None
    size = sum(leaf.nbytes for leaf in leaves(wanted))
    in_files = [leaf for leaf in leaves(joined) if type(leaf) is SpilledArray]
    if memory is None or size <= memory:
        assert not in_files
    else:
        assert size - sum(leaf.nbytes for leaf in in_files) <= memory


def test_the_largest_goes_first() -> None:
    kept = RowStore(Scratch(1000), rows=100)
    for _ in range(10):
        kept.add({"logits": np.zeros((10, 7)), "labels": np.zeros(10, np.int64)}, 10)
    assert isinstance(kept.join("logits"), SpilledArray)
    assert type(kept.join("labels")) is np.ndarray


def test_fewer_rows_than_expected_come_back_to_memory() -> None:
    kept = RowStore(Scratch(1000), rows=10**6)
    kept.add({"logits": np.ones((3, 5))}, 3)
    logits = kept.join("logits")
    assert type(logits) is np.ndarray
    assert logits.tolist() == [[1.0] * 5] * 3


def test_what_is_kept_is_a_copy() -> None:
    batch, kept = np.ones(3), RowStore()
    kept.add({"logits": batch}, 3)
    batch[:] = 7  # a model may use its memory again
    assert kept.join("logits").tolist() == [1, 1, 1]


def test_kinds_that_differ_are_as_in_numpy() -> None:
    kept = RowStore(Scratch(0))
    for kind in ("int32", "float32"):
        kept.add({"logits": np.ones(2, kind)}, 2)
    assert kept.join("logits").dtype == np.concatenate([np.ones(2, "int32"), np.ones(2, "float32")]).dtype


def test_objects_stay_in_memory() -> None:
    kept = RowStore(Scratch(0))
    for word in ("a", "b"):
        kept.add({"logits": {"text": np.array([word], dtype=object), "n": np.ones(1)}}, 1)
    joined = kept.join("logits")
    assert joined["text"].tolist() == ["a", "b"]
    assert joined["n"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([np.zeros((2, 3, 4)), np.zeros((2, 3, 5))], ShapeError),
        ([np.zeros((2, 3)), np.zeros(2)], ShapeError),
        ([(np.zeros(2),), (np.zeros(2), np.zeros(2))], ValueError),
        ([{"a": np.zeros(2)}, {"b": np.zeros(2)}], ValueError),
        ([np.zeros(2), (np.zeros(2),)], ValueError),
        ([(np.zeros(2), None), (np.zeros(2), None)], TypeError),
    ],
)
def test_what_does_not_fit_together(parts: list[Any], error: type[Exception]) -> None:
    kept, apart = RowStore(Scratch(0)), RowStore(Scratch(0))
    for part in parts:
        kept.add({"logits": part}, 2)
        apart.add({"logits": part}, 2)
    with pytest.raises(error):
        kept.join("logits")
    assert plain(apart.batches("logits")) == plain(parts)


def test_names_in_another_order() -> None:
    kept = RowStore()
    kept.add({"logits": {"a": np.zeros(1), "b": np.ones(1)}}, 1)
    kept.add({"logits": {"b": np.ones(1), "a": np.zeros(1)}}, 1)
    assert {name: array.tolist() for name, array in kept.join("logits").items()} == {"a": [0, 0], "b": [1, 1]}


# ---------------------------------------------------------------------------------------------------------- forecast


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(store, "note_once", lambda text, key=None: lines.append(text))
    return lines


def test_a_forecast_after_the_first_batch(notices: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Scratch, "choose_directory", lambda self, size: ScratchDirectory("/var/tmp", 10**12, in_memory=False)
    )
    kept = RowStore(Scratch(2**26), rows=2000)
    kept.add({"logits": np.zeros((2, 32, 8000), np.float32), "labels": np.zeros((2, 32), np.int64)}, 2)
    assert kept.forecast is not None
    assert kept.forecast.spills
    assert kept.forecast.bytes == 2000 * 32 * 8000 * 4 + 2000 * 32 * 8
    assert [(array.name, array.shape) for array in kept.forecast.arrays] == [
        ("predictions", (2000, 32, 8000)),
        ("labels", (2000, 32)),
    ]
    assert notices == [
        "evaluation keeps 2.0 GB of predictions (float32 2000 x 32 x 8000): in a file under /var/tmp; "
        "preprocess_logits_for_metrics=... or a metric that is updated batch by batch would need none"
    ]


def test_nothing_is_said_of_what_stays_in_memory(notices: list[str]) -> None:
    kept = RowStore(Scratch(2**20), rows=100)
    for _ in range(10):
        kept.add({"logits": np.zeros((10, 20)), "labels": np.zeros(10)}, 10)
    assert notices == []
    assert kept.forecast is not None
    assert not kept.forecast.spills


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (ScratchDirectory("/dev/shm", 10**9, in_memory=True), "which is memory"),
        (ScratchDirectory("/tmp", 10**5, in_memory=False), "where 100.0 kB are free"),
    ],
)
def test_a_doubtful_place_is_named(
    place: ScratchDirectory, words: str, notices: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(
        Scratch, "choose_directory", lambda self, size: ScratchDirectory(str(tmp_path), place.free, place.in_memory)
    )
    kept = RowStore(Scratch(100), rows=100_000)
    kept.add({"logits": np.zeros((10, 20))}, 10)
    assert words in notices[0]


def test_rows_of_unknown_number_are_told_when_they_are_too_many(notices: list[str]) -> None:
    kept = RowStore(Scratch(1000))
    kept.add({"logits": np.zeros((10, 10))}, 10)
    assert notices == []
    kept.add({"logits": np.zeros((10, 10))}, 10)
    assert notices[0].startswith("evaluation keeps more than 1.0 kB: in a file under")


def test_a_forecast_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    found = forecast({"logits": torch.zeros(2, 5, dtype=torch.bfloat16), "labels": [torch.tensor(3)]}, 2, 10, None)
    assert [str(array) for array in found.arrays] == ["bfloat16 10 x 5", "int64 5"]
    assert found.bytes == 10 * 5 * 4 + 5 * 8
    assert not found.spills
