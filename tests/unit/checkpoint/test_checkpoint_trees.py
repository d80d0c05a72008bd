"""Nested state survives the trip to the disk bit for bit, or is refused by name."""

from __future__ import annotations

import functools
import json
import math
import os
import stat
from collections import Counter, OrderedDict, defaultdict, namedtuple
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from ostinato.checkpoint.tensors import flatten, read_tree, write_tree
from ostinato.core.errors import CheckpointError


def round_trip(tree: Any, directory: Path) -> Any:
    write_tree(tree, directory, "state")
    return read_tree(directory, "state")


def same(left: Any, right: Any) -> bool:
    """Equal in type, in bits and in order."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        as_bytes = [t.contiguous().reshape(-1).view(torch.uint8) if t.numel() else t for t in (left, right)]
        return left.dtype == right.dtype and left.shape == right.shape and torch.equal(*as_bytes)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, np.generic):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if isinstance(left, float):
        return np.float64(left).tobytes() == np.float64(right).tobytes()
    if isinstance(left, dict):
        return (
            [(type(key), key) for key in left] == [(type(key), key) for key in right]
            and all(same(left[key], right[key]) for key in left)
        )  # fmt: skip
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


SCALARS = [
    None,
    True,
    False,
    0,
    -1,
    2**200,
    "",
    "text",
    "\ud800\0é\u2028",
    0.1,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    math.inf,
    -math.inf,
    math.nan,
    np.float32(0.1),
    np.float64(0.1),
    np.float64("nan"),
    np.float16("inf"),
    np.int64(-5),
    np.uint64(2**64 - 1),
    np.bool_(True),
    torch.bfloat16,
]
CONTAINERS = [
    {},
    [],
    (),
    [[]],
    ((),),
    {"a": {}},
    {0: "int", "0": "text", None: 1, True: 2, 2.5: 3, math.inf: 4},
    {"dict": {"tuple": [1]}, "tensor": "not a tensor", "float": "nan"},
    {"tensor": {"tensor": "x"}},
    OrderedDict([("b", 1), ("a", (2, [3, {"c": None}]))]),
    Counter({30: 1, 80: 2}),
    torch.Size([2, 3]),
    [(1, [2, (3,)]), {"x": (None,)}],
]


@pytest.mark.parametrize("value", SCALARS + CONTAINERS, ids=repr)
def test_plain_values_survive(tmp_path: Path, value: Any):
    tree = {"key": value, "list": [value], "tuple": (value,)}
    assert same(round_trip(tree, tmp_path), tree)
    assert same(round_trip(value, tmp_path), value)
    assert os.listdir(tmp_path) == ["state.json"]  # no tensors, no file for them


DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.complex64, torch.complex128),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0, 3), (2, 3, 4)], ids=str)
def test_tensors_survive(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]):
    tensor = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 5).to(torch.float64)
    tensor = tensor.abs().to(dtype) if "uint" in str(dtype) else tensor.to(dtype)
    assert same(round_trip({0: tensor}, tmp_path), {0: tensor})
    assert same(round_trip(tensor, tmp_path), tensor)


def test_special_numbers_in_tensors_survive(tmp_path: Path):
    tensor = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-45])
    assert same(round_trip(tensor, tmp_path), tensor)


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint32", "uint64", "float16", "float64"])
def test_arrays_survive(tmp_path: Path, dtype: str):
    for array in (np.arange(6).astype(dtype).reshape(2, 3), np.array(1, dtype), np.zeros((0, 2), dtype)):
        assert same(round_trip([array], tmp_path), [array])
    turned = np.arange(6).astype(dtype).reshape(2, 3).T[::-1]
    turned.flags.writeable = False
    assert same(round_trip(turned, tmp_path), turned)


def test_views_are_saved_as_what_they_show(tmp_path: Path):
    base = torch.arange(24.0).reshape(4, 6)
    views = [base, base[1:3], base.t(), base[:, ::2], base[0].expand(3, 6), base.detach(), base.flip(0)]
    assert same(round_trip(views, tmp_path), [view.clone() for view in views])
    complex_views = [torch.randn(3, dtype=torch.complex64).conj(), torch.randn(3, dtype=torch.complex64).imag]
    assert same(round_trip(complex_views, tmp_path), [view.resolve_conj().clone() for view in complex_views])


def test_the_layout_in_memory_survives(tmp_path: Path):
    weights = [
        torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last),
        torch.randn(4, 1, 5, 5).to(memory_format=torch.channels_last),
        torch.randn(3, 5).t(),
    ]
    for weight, loaded in zip(weights, round_trip(weights, tmp_path), strict=True):
        assert same(loaded, weight)
        assert torch.empty_like(loaded).stride() == torch.empty_like(weight).stride()


def test_one_tensor_in_two_places_stays_one(tmp_path: Path):
    shared = torch.ones(3)
    loaded = round_trip({"a": shared, "b": [shared], "c": torch.ones(3)}, tmp_path)
    assert loaded["a"] is loaded["b"][0]
    assert loaded["a"] is not loaded["c"]


def test_parameters_and_gradients_are_saved_as_numbers(tmp_path: Path):
    parameter = torch.nn.Parameter(torch.ones(2))
    loaded = round_trip([parameter, parameter * 2], tmp_path)
    assert same(loaded, [torch.ones(2), torch.full((2,), 2.0)])
    assert not loaded[1].requires_grad


def test_names_that_collide_are_told_apart(tmp_path: Path):
    numbers = iter(range(100))
    one = functools.partial(lambda: torch.tensor(next(numbers)))
    tree = {"a": {"b": one()}, "a.b": one(), 0: one(), "0": one(), "__metadata__": one(), "a.b#2": one(), "": one()}
    assert same(round_trip(tree, tmp_path), tree)
    assert same(
        round_trip({"": {"": one()}, "x": [one()]}, tmp_path), {"": {"": torch.tensor(7)}, "x": [torch.tensor(8)]}
    )


def test_tensor_names_can_be_read(tmp_path: Path):
    write_tree({"state": {0: {"exp_avg": torch.ones(1)}}}, tmp_path, "optimizer")
    with safe_open(tmp_path / "optimizer.safetensors", "pt") as file:
        assert list(file.keys()) == ["state.0.exp_avg"]


def test_loaded_tensors_do_not_depend_on_the_file(tmp_path: Path):
    write_tree({"x": torch.zeros(1000)}, tmp_path, "state")
    before = (tmp_path / "state.safetensors").read_bytes()
    loaded = read_tree(tmp_path, "state")
    loaded["x"].add_(1)
    assert (tmp_path / "state.safetensors").read_bytes() == before
    os.truncate(tmp_path / "state.safetensors", 0)
    assert loaded["x"].sum() == 1000


def test_a_save_without_tensors_forgets_those_of_the_one_before(tmp_path: Path):
    write_tree({"x": torch.zeros(1)}, tmp_path, "state")
    assert round_trip({"x": 1}, tmp_path) == {"x": 1}
    assert os.listdir(tmp_path) == ["state.json"]


def test_others_may_read_the_files_if_they_may_read_the_directory(tmp_path: Path):
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o755)
    write_tree(torch.zeros(1), directory, "state")
    assert stat.S_IMODE((directory / "state.safetensors").stat().st_mode) == 0o644


# ------------------------------------------------------------------------------------------------------------ refusals

Pair = namedtuple("Pair", "a b")


class Colour(str, Enum):
    RED = "red"


class Custom:
    pass


class Special(torch.Tensor):
    pass


def deep() -> Any:
    tree: Any = 0
    for _ in range(5000):
        tree = [tree]
    return tree


def endless() -> Any:
    tree: dict[str, Any] = {}
    tree["again"] = tree
    return tree


REFUSED = {
    "function": lambda: 1,
    "object": Custom(),
    "class": Custom,
    "partial": functools.partial(int),
    "set": {1},
    "bytes": b"x",
    "named tuple": Pair(1, 2),
    "enum": Colour.RED,
    "defaultdict": defaultdict(int),
    "complex": 1j,
    "device": torch.device("cpu"),
    "generator": torch.Generator(),
    "object array": np.array([Custom()], dtype=object),
    "text array": np.array(["x"]),
    "date": np.datetime64("2020-01-01"),
    "numpy text": np.str_("x"),
    "sparse": torch.eye(2).to_sparse(),
    "meta": torch.empty(1, device="meta"),
    "subclass": torch.ones(1).as_subclass(Special),
    "tuple as key": {(1, 2): 3},
    "deep": deep(),
    "endless": endless(),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_saved_is_named(tmp_path: Path, kind: str):
    tree = {"state": {0: [1, {"here": REFUSED[kind]}]}}
    with pytest.raises(CheckpointError) as caught:
        write_tree(tree, tmp_path, "optimizer")
    assert "optimizer['state'][0][1]['here']" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_json_that_could_not_be_read_back_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ostinato.checkpoint.io.LARGEST_JSON", 100)
    with pytest.raises(CheckpointError, match=r"state\.json"):
        write_tree(["x" * 100], tmp_path, "state")


# -------------------------------------------------------------------------------------------------------- broken files


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write_tree({"x": torch.zeros(10), "y": torch.ones(2), "z": 1.5}, tmp_path, "state")
    return tmp_path


@pytest.mark.parametrize("name", ["state.json", "state.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "link"])
def test_damaged_files_are_named(saved: Path, name: str, damage: str):
    path = saved / name
    content = path.read_bytes()
    path.unlink()
    if damage == "link":
        (saved / "copy").write_bytes(content)
        path.symlink_to(saved / "copy")
    elif damage != "missing":
        path.write_bytes(b"" if damage == "empty" else content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        read_tree(saved, "state")


@pytest.mark.parametrize(
    "tree",
    [
        {"pickle": "cos\nsystem"},
        {"tensor": "not there"},
        {"tensor": ["x"]},
        {"float": "1"},
        {"dict": [1]},
        {"items": [[1]]},
        {"items": [[[], 1]]},
        {"numpy": "object", "value": 1},
        {"numpy": "int8", "value": 1000},
        {"dtype": "load"},
        {"tensor": "x", "stride": [2**40]},
        {"tensor": "x", "stride": [1, 1]},
        {"tensor": "x", "complex": True},
        {"size": "ab"},
        {},
        [3],
    ],
    ids=json.dumps,
)
def test_structures_that_make_no_sense_are_refused(saved: Path, tree: Any):
    (saved / "state.json").write_text(json.dumps({"format": 1, "tensors": 2, "tree": tree}))
    with pytest.raises(CheckpointError, match="state"):
        read_tree(saved, "state")


@pytest.mark.parametrize("text", ["[]", "3", "{}", '{"format": 2}', '{"format": 1}', "[" * 100_000, "\xff"])
def test_json_that_is_no_tree_is_refused(saved: Path, text: str):
    (saved / "state.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"state\.json"):
        read_tree(saved, "state")


def test_taking_apart_does_not_touch_the_disk():
    flat = flatten({"a": torch.ones(2), "b": 1})
    assert flat.structure == {"dict": {"a": {"tensor": "a"}, "b": 1}}
    assert list(flat.tensors) == ["a"]
