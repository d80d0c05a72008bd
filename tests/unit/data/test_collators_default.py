"""The default collator gives what transformers' gives, and explains what it cannot join."""

from __future__ import annotations

import random
import warnings
from collections import UserDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.core.errors import DataError, NotSupportedError
from ostinato.data.collators.default import DefaultDataCollator, default_data_collator


class Row:
    def __init__(self) -> None:
        self.x = [1, 2]
        self.label = 1
        self.note = None


@dataclass
class Record:
    x: list[int]
    label: int


T = torch.tensor
CASES: dict[str, list[Any]] = {
    "labels come first": [{"x": [1, 2], "label": 1}, {"label": 0, "x": [3, 4]}],
    "float label": [{"label": 1.5}, {"label": 2}],
    "int label, then float": [{"label": 3}, {"label": 3.7}],
    "bool label": [{"label": True}] * 2,
    "numpy int label": [{"label": np.int32(3)}] * 2,
    "numpy float label": [{"label": np.float64(3.25)}] * 2,
    "tensor label": [{"label": T(3)}] * 2,
    "tensor label, int32": [{"label": T(3, dtype=torch.int32)}] * 2,
    "tensor label, bool": [{"label": T(True)}] * 2,
    "tensor label, float64": [{"label": T(3.5, dtype=torch.float64)}] * 2,
    "tensor label, one element": [{"label": T([3])}] * 2,
    "multi-hot label": [{"label": [0, 1]}] * 2,
    "no label after all": [{"label": None, "x": 1}] * 2,
    "label_ids": [{"label_ids": [1, 2]}] * 2,
    "label_ids, float": [{"label_ids": [1.0, 2.0]}] * 2,
    "label_ids, int then float": [{"label_ids": [1, 2.5]}] * 2,
    "label_ids, bool": [{"label_ids": [True, False]}] * 2,
    "label_ids, nested": [{"label_ids": [[1], [2]]}] * 2,
    "label_ids, tensor": [{"label_ids": T([1, 2], dtype=torch.int32)}] * 2,
    "label_ids, array": [{"label_ids": np.array([1, 2], dtype=np.int32)}] * 2,
    "label_ids, float array": [{"label_ids": np.array([1.0, 2.0])}] * 2,
    "label_ids, none": [{"label_ids": None, "x": 1}] * 2,
    "label and label_ids": [{"label": 1, "label_ids": [1, 2]}] * 2,
    "label is none, label_ids not": [{"label": None, "label_ids": [1, 2]}] * 2,
    "labels and label": [{"labels": 5, "label": 1, "x": 2}] * 2,
    "every type": [
        {"a": 1, "b": 2.0, "c": True, "d": "text", "e": None, "f": T(1.0), "g": np.array(2.0), "h": np.ones((2, 2))}
    ]
    * 2,
    "numpy scalars": [{"a": np.float32(2), "b": np.int16(1), "c": np.float64(2), "d": np.bool_(True)}] * 2,
    "nested lists": [{"a": [[1, 2], [3, 4]], "b": (1, 2), "c": [[[1.5]]], "d": [True, False]}] * 2,
    "int and float": [{"a": 1, "b": [1, 2]}, {"a": 1.5, "b": [1.5, 2]}],
    "bool and int": [{"a": [True, 2]}, {"a": [3, False]}],
    "lists of arrays": [{"a": [np.ones(2), np.ones(2)]}] * 2,
    "lists of tensors": [{"a": [T(1), T(2)]}] * 2,
    "other dtypes": [{"a": np.float16([1, 2]), "b": np.array([1], dtype=np.uint16), "c": T([1], dtype=torch.int8)}]
    * 2,
    "large numbers": [{"a": 2**40, "b": 16777217.0, "c": float("inf")}] * 2,
    "complex": [{"a": 1 + 2j}] * 2,
    "empty lists": [{"a": []}] * 2,
    "array, then list": [{"a": np.ones(1)}, {"a": [1]}],
    "int tensor, then float": [{"a": T([1])}, {"a": T([1.5])}],
    "first is none": [{"a": None, "b": 1}, {"a": 1, "b": 1}],
    "second has more": [{"a": 1}, {"a": 1, "b": 2}],
    "empty rows": [{}] * 2,
    "one row": [{"a": [1, 2], "label": 0}],
    "user dict": [UserDict({"a": [1, 2], "label": 1})] * 2,
    "objects": [Row(), Row()],
    "dataclass": [Record([1], 2), Record([3], 4)],
}


def described(batch: Any) -> list[tuple[str, str, tuple[int, ...], Any]]:
    return [(name, str(value.dtype), tuple(value.shape), value.tolist()) for name, value in batch.items()]


def theirs(rows: list[Any], kind: str) -> Any:
    transformers = pytest.importorskip("transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it advises against lists of arrays
        return transformers.default_data_collator(rows, return_tensors=kind)


@pytest.mark.parametrize("kind", ["pt", "np"])
@pytest.mark.parametrize("name", CASES)
def test_same_batch_as_transformers(name: str, kind: str) -> None:
    rows = CASES[name]
    assert described(default_data_collator(rows, return_tensors=kind)) == described(theirs(rows, kind))


def random_value(rng: random.Random, kind: str, shape: tuple[int, ...]) -> Any:
    """A value of one column: the same kind and shape in every row."""
    array = np.array([rng.uniform(-5, 5) for _ in range(int(np.prod(shape)))]).reshape(shape)
    return {
        "int": lambda: array.astype(np.int64).tolist(),
        "float": array.tolist,
        "bool": lambda: (array > 0).tolist(),
        "float32 array": lambda: array.astype(np.float32),
        "int64 array": lambda: array.astype(np.int64),
        "tensor": lambda: torch.from_numpy(array.copy()).float(),
        "int tensor": lambda: torch.from_numpy(array.astype(np.int32)),
        "text": lambda: str(array.sum()),
        "none": lambda: None,
    }[kind]()


KINDS = ["int", "float", "bool", "float32 array", "int64 array", "tensor", "int tensor", "text", "none"]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", ["pt", "np"])
def test_same_random_batches_as_transformers(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    columns = {f"c{n}": (rng.choice(KINDS), tuple(rng.choices((1, 2, 3), k=rng.randint(0, 3)))) for n in range(5)}
    columns |= rng.choice([{}, {"label": ("int", ())}, {"label": ("float", ())}, {"label_ids": ("int", (3,))}])
    order = rng.sample(list(columns), len(columns))
    rows = [{name: random_value(rng, *columns[name]) for name in order} for _ in range(rng.randint(1, 6))]
    assert described(default_data_collator(rows, return_tensors=kind)) == described(theirs(rows, kind))


def test_batch_encodings_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    rows = [transformers.BatchEncoding({"input_ids": [1, 2], "label": 1}) for _ in range(2)]
    assert described(default_data_collator(rows)) == described(theirs(rows, "pt"))


def test_rows_stay_as_they_are() -> None:
    rows = [{"label": 1, "a": [1]}]
    default_data_collator(rows)
    assert rows == [{"label": 1, "a": [1]}]


def test_a_batch_does_not_share_memory_with_its_rows() -> None:
    row = torch.zeros(2)
    batch = default_data_collator([{"a": row, "b": row.numpy()}])
    batch["a"] += 1
    batch["b"] += 1
    assert row.tolist() == [0, 0]


def test_floats_follow_the_default_dtype_of_torch() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        batch = default_data_collator([{"a": 1.5, "b": [1.5]}])
    finally:
        torch.set_default_dtype(torch.float32)
    assert batch["a"].dtype == batch["b"].dtype == torch.float64


def test_object_form() -> None:
    assert isinstance(DefaultDataCollator()([{"x": 1}])["x"], torch.Tensor)
    assert isinstance(DefaultDataCollator("np")([{"x": 1}])["x"], np.ndarray)
    assert isinstance(DefaultDataCollator()([{"x": 1}], return_tensors="np")["x"], np.ndarray)
    assert DefaultDataCollator() == DefaultDataCollator("pt")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"a": [1]}, {"a": [1, 2]}], ["'a'", "row 0 has 1, row 1 has 2", "DataCollatorWithPadding"]),
        ([{"a": T([1])}, {"a": T([1, 2])}], ["'a'", "row 0 has 1, row 1 has 2"]),
        ([{"a": np.ones(1)}, {"a": np.ones(2)}], ["'a'", "row 0 has 1, row 1 has 2"]),
        ([{"a": np.ones((1, 2))}, {"a": np.ones((3, 2))}], ["'a'", "row 0 has (1, 2), row 1 has (3, 2)", "images"]),
        ([{"a": [1]}, {"a": 2}], ["'a' of row 1", "a single value (2)", "a list of 1"]),
        ([{"a": [1, 2]}, {"a": [1, "b"]}], ["'a' of row 1", "holds text: 'b'"]),
        ([{"a": 1}, {"a": "2"}], ["'a' of row 1", "is text: '2'", "other rows have int"]),
        ([{"a": 1}, None], ["row 1", "is None"]),
        ([{"a": 1}, (1, 2)], ["row 1", "a tuple of int and int"]),
        ([T([1])], ["row 0", "Tensor", "dicts"]),
        ([{"a": [[1], [1, 2]]}] * 2, ["'a'", "list"]),
        ([{"a": 1, "b": 2}, {"a": 1}], ["'b'", "row 1"]),
        ([{"a": 1}, {"a": None}], ["'a'", "row 1"]),
        ([{"label": 1}, {}], ["'label'", "row 1"]),
        ([{"label": "cat"}] * 2, ["'label'", "'cat'", "class_encode_column"]),
        ([{"label": T([1, 2])}] * 2, ["'label'"]),
        ([{"a": {"b": 1}}] * 2, ["'a'", "dict"]),
        ([{"a": T([1])}, {"a": [1]}], ["'a'", "Tensor and list"]),
        ([(1, 2)], ["tuple", "dicts"]),
        ([], ["without rows"]),
    ],
)
def test_what_cannot_be_joined_is_explained(rows: list[Any], words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        default_data_collator(rows)
    assert caught.value.why and caught.value.fix
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("kind", ["tf", "jax", None])
def test_other_tensors_are_refused(kind: Any) -> None:
    with pytest.raises(NotSupportedError, match="return_tensors"):
        default_data_collator([{"x": 1}], return_tensors=kind)
