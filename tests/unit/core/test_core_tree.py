"""Nested tuples, lists and dicts of tensors."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest
import torch

from ostinato.core import tree
from tests.support.apis import guest, load_library
from tests.support.records import assert_same


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


def ragged(lib=torch) -> list:
    """Three batches of tuples of rows; the second dimension differs, and one part is flat."""
    make = (lambda *shape: torch.arange(float(np.prod(shape))).reshape(shape)) if lib is torch else None
    make = make or (lambda *shape: np.arange(float(np.prod(shape))).reshape(shape))
    return [(make(2, 3, 2), make(2)), (make(1, 5, 2), make(1)), (make(3, 1, 2), make(3))]


# ------------------------------------------------------------------------------------------------------------ map


def test_map_keeps_types() -> None:
    leaf = torch.ones(2)
    before = {"a": [leaf, (leaf, 3)], "b": OrderedDict(x=leaf), "c": Pair(leaf, leaf), "d": None}
    after = tree.tree_map(lambda one: one * 2 if isinstance(one, torch.Tensor) else one, before)
    assert type(after["a"]) is list
    assert type(after["a"][1]) is tuple
    assert type(after["b"]) is OrderedDict
    assert type(after["c"]) is Pair
    assert after["a"][1][1] == 3
    assert after["d"] is None
    assert torch.equal(after["c"].right, torch.full((2,), 2.0))
    assert torch.equal(before["c"].right, torch.ones(2))


def test_map_keeps_model_output() -> None:
    pytest.importorskip("transformers")
    with guest("transformers"):
        load_library("transformers")
        from transformers.modeling_outputs import SequenceClassifierOutput

        output = SequenceClassifierOutput(loss=torch.ones(()), logits=torch.ones(2, 3))
        after = tree.tree_map(lambda leaf: leaf * 2, output)
    assert type(after) is SequenceClassifierOutput
    assert after.loss == 2
    assert after["logits"].sum() == 12
    assert list(after.keys()) == ["loss", "logits"]


def test_detach_and_numpify() -> None:
    leaf = torch.ones(2, requires_grad=True) * 2
    assert not tree.detach({"a": (leaf, 1)})["a"][0].requires_grad
    arrays = tree.numpify((leaf, leaf.to(torch.bfloat16), leaf.half(), torch.tensor([1]), "word"))
    assert [a.dtype.name for a in arrays[:4]] == ["float32", "float32", "float16", "int64"]
    assert arrays[4] == "word"


# ---------------------------------------------------------------------------------------------------- concatenate


def test_concatenate_fills_ragged_widths() -> None:
    joined = tree.concatenate([torch.tensor([[1, 2]]), torch.tensor([[3, 4, 5], [6, 7, 8]])])
    assert joined.tolist() == [[1, 2, -100], [3, 4, 5], [6, 7, 8]]
    joined = tree.concatenate([np.array([[1, 2]]), np.array([[3]])], padding_index=0)
    assert joined.tolist() == [[1, 2], [3, 0]]


def test_concatenate_joins_numbers() -> None:
    assert tree.concatenate([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1.0, 2.0]


def test_concatenate_keeps_containers() -> None:
    one = torch.ones(1, 2)
    joined = tree.concatenate([{"a": [one], "b": (one, one)}] * 3)
    assert type(joined["a"]) is list
    assert type(joined["b"]) is tuple
    assert joined["b"][1].shape == (3, 2)
    pairs = tree.concatenate([Pair(one, one), Pair(one, one)])
    assert type(pairs) is Pair
    assert pairs.left.shape == (2, 2)


def test_concatenate_refuses_other_things() -> None:
    with pytest.raises(TypeError, match="str"):
        tree.concatenate(["a", "b"])


@pytest.mark.parametrize("padding", [-100, 0])
@pytest.mark.parametrize("lib", [torch, np], ids=lambda lib: lib.__name__)
def test_concatenate_as_transformers(lib, padding: int) -> None:
    pytest.importorskip("transformers")
    with guest("transformers"):
        load_library("transformers")
        from transformers.trainer_pt_utils import nested_concat

        parts = ragged(lib)
        theirs = parts[0]
        for part in parts[1:]:
            theirs = nested_concat(theirs, part, padding_index=padding)
    assert_same(theirs, tree.concatenate(parts, padding_index=padding), "joined")


# ----------------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        (torch.ones(3, 2), 3),
        (np.ones((4, 2)), 4),
        ({"x": torch.ones(5), "y": torch.ones(2)}, 5),
        ({"name": "word", "x": [torch.ones(6)]}, 6),
        ((torch.tensor(1.0), torch.ones(7)), 7),
        (torch.tensor(1.0), None),
        ({}, None),
        ("word", None),
        ({"x": torch.ones(0, 4)}, 0),
    ],
)
def test_first_dimension(batch, rows: int | None) -> None:
    assert tree.first_dimension(batch) == rows


def test_truncate() -> None:
    cut = tree.truncate({"a": torch.arange(4), "b": (np.arange(4),)}, 2)
    assert cut["a"].tolist() == [0, 1]
    assert cut["b"][0].tolist() == [0, 1]


def test_what_has_no_rows_is_not_truncated() -> None:
    scalar = torch.tensor(1.0)
    assert tree.truncate({"temperature": scalar, "return_loss": True, "text": "words"}, 2) == {
        "temperature": scalar, "return_loss": True, "text": "words",
    }  # fmt: skip
