"""Objects in the state of optimizers come back from a checkpoint as they were, and no others are built."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato.checkpoint.tensors import read_tree, write_tree
from ostinato.core.errors import CheckpointError


def install(monkeypatch: pytest.MonkeyPatch, module: str, cls: type) -> type:
    """Give a class the name of one that a package has."""
    names = module.split(".")
    for depth in range(1, len(names) + 1):
        name = ".".join(names[:depth])
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    setattr(sys.modules[module], cls.__name__, cls)
    cls.__module__, cls.__qualname__ = module, cls.__name__
    return cls


@pytest.fixture
def projector(monkeypatch: pytest.MonkeyPatch) -> Any:
    class GaLoreProjector:
        def __init__(self, rank: int) -> None:
            raise AssertionError("a projector is built from its attributes")

    cls: Any = install(monkeypatch, "galore_torch.galore_projector", GaLoreProjector)
    made = object.__new__(cls)
    made.rank, made.scale, made.proj_type = 2, 0.25, "std"
    made.ortho_matrix = torch.linalg.svd(torch.arange(36.0).reshape(6, 6))[2][:2]
    return made


def test_projectors_keep_attributes_and_the_layout_of_their_matrices(projector: Any, tmp_path: Path) -> None:
    """The product with a matrix that lies otherwise in memory is rounded in another order."""
    projector.ortho_matrix = torch.randn(6, 6).t()[:2]
    projector.pair = [torch.randn(6, 6)[:, :2], torch.randn(2, 6)]
    write_tree({"state": {0: {"projector": projector, "step": 3}}}, tmp_path, "optimizer")
    found = read_tree(tmp_path, "optimizer")["state"][0]["projector"]
    assert type(found) is type(projector) and found is not projector
    assert (found.rank, found.scale, found.proj_type) == (2, 0.25, "std")
    for one, other in [(found.ortho_matrix, projector.ortho_matrix), *zip(found.pair, projector.pair, strict=True)]:
        assert torch.equal(one, other) and one.stride() == other.stride()
    assert projector.ortho_matrix.stride() == (1, 6) and projector.pair[0].stride() == (6, 1)


def test_a_projector_before_its_first_projection(projector: Any, tmp_path: Path) -> None:
    projector.ortho_matrix = None
    write_tree([projector], tmp_path, "optimizer")
    assert vars(read_tree(tmp_path, "optimizer")[0]) == vars(projector)


def test_packed_tensors_are_stored_in_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class OptimState8bit(torch.Tensor):
        @staticmethod
        def __new__(cls: Any, codes: torch.Tensor, scale: torch.Tensor, signed: bool) -> Any:
            made = torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)
            made.codes, made.scale, made.signed = codes, scale, signed
            return made

        @classmethod
        def __torch_dispatch__(cls, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(f"{function} needs values that are not there")

        def __tensor_flatten__(self) -> Any:
            return ["codes", "scale"], [self.signed, torch.float32]

        @classmethod
        def __tensor_unflatten__(cls, parts: Any, context: Any, size: Any = None, stride: Any = None) -> Any:
            return cls(parts["codes"], parts["scale"], context[0])

    cls: Any = install(monkeypatch, "torchao.optim.subclass_8bit", OptimState8bit)
    codes, scale = torch.arange(6, dtype=torch.uint8).reshape(2, 3), torch.tensor([0.5])
    write_tree({"exp_avg": cls(codes, scale, True)}, tmp_path, "optimizer")
    found = read_tree(tmp_path, "optimizer")["exp_avg"]
    assert type(found) is cls and found.signed is True
    assert torch.equal(found.codes, codes) and torch.equal(found.scale, scale)


def test_a_class_that_is_not_known_is_refused_when_saving(tmp_path: Path) -> None:
    class Projector:
        pass

    with pytest.raises(CheckpointError, match="Projector"):
        write_tree({"projector": Projector()}, tmp_path, "optimizer")


def test_a_file_cannot_name_a_class_of_its_own(projector: Any, tmp_path: Path) -> None:
    write_tree([projector], tmp_path, "optimizer")
    path = tmp_path / "optimizer.json"
    content = json.loads(path.read_text())
    content["tree"][0]["object"] = "os.system"
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="does not describe a tree"):
        read_tree(tmp_path, "optimizer")


@pytest.mark.parametrize("stride", [[1, 1000], [-1, 6], [6]])
def test_a_file_cannot_ask_for_more_memory_than_a_square_matrix(projector: Any, tmp_path: Path, stride: Any) -> None:
    projector.ortho_matrix = torch.randn(6, 6).t()[:2]
    write_tree([projector], tmp_path, "optimizer")
    path = tmp_path / "optimizer.json"
    content = json.loads(path.read_text())
    content["tree"][0]["fields"]["dict"]["strides"]["dict"]["ortho_matrix"] = stride
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError):
        read_tree(tmp_path, "optimizer")
