"""Our `.safetensors` files are those of the library, byte for byte, from whichever memory they are written."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from ostinato.checkpoint.tensor_file import PIECE, TensorFile, allocate, split_in_pieces
from ostinato.checkpoint.tensors import write_tensors
from ostinato.core.errors import CheckpointError

TYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
    "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip


def everything() -> dict[str, torch.Tensor]:
    numbers = {name: torch.arange(6).view(2, 3).to(getattr(torch, name)) for name in TYPES}
    return {
        **{f"{'zyx'[i % 3]}.{name}": value for i, (name, value) in enumerate(numbers.items())},
        "scalar": torch.tensor(3.5),
        "nothing": torch.zeros(0, 4),
        'odd "name"\\\n\x01é': torch.ones(3),
        "a.bool": torch.tensor([True, False, True]),
    }


@pytest.fixture
def by_the_library(tmp_path: Path) -> bytes:
    save_file(everything(), tmp_path / "theirs", metadata={"format": "pt"})
    return (tmp_path / "theirs").read_bytes()


def in_memory(file: TensorFile) -> bytes:
    return bytes(file.copy_into(torch.frombuffer(allocate(file.size), dtype=torch.uint8)))


def tensor_by_tensor(file: TensorFile) -> bytes:
    return b"".join(map(bytes, file.pieces()))


def page_by_page(file: TensorFile) -> bytes:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    pieces = [bytes(piece) for piece in file.pages(memory)]
    assert all(len(piece) == mmap.PAGESIZE for piece in pieces[:-1])
    return b"".join(pieces)


@pytest.mark.parametrize("way", [in_memory, tensor_by_tensor, page_by_page])
def test_the_bytes_are_those_of_the_library(by_the_library: bytes, way):
    file = TensorFile.of(everything(), {"format": "pt"})
    assert way(file) == by_the_library
    assert file.size == len(by_the_library)


@pytest.mark.parametrize("way", [in_memory, tensor_by_tensor, page_by_page])
def test_tensors_that_are_not_laid_out_plainly(tmp_path: Path, way):
    base = torch.arange(24.0).view(4, 6)
    odd = {
        "transposed": base.t(),
        "sliced": base[1:3, 2:5],
        "expanded": torch.ones(1).expand(5),
        "shared": base,
        "conjugated": torch.tensor([1 + 2j]).conj(),
        "negated": torch.tensor([1 + 2j]).conj().imag,
        "large": torch.arange(5000.0),
    }
    (tmp_path / "ours").write_bytes(way(TensorFile.of(odd)))
    read = load_file(tmp_path / "ours")
    assert read.keys() == odd.keys()
    for name, value in odd.items():
        assert torch.equal(read[name], value.resolve_conj().resolve_neg()), name


def test_no_tensors_at_all(tmp_path: Path):
    write_tensors(tmp_path / "ours", {})
    save_file({}, tmp_path / "theirs")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_metadata_comes_back(tmp_path: Path):
    write_tensors(tmp_path / "ours", {"a": torch.ones(2)}, {"format": "pt", "more": '{"b": "a"}'})
    with safe_open(tmp_path / "ours", framework="pt") as file:
        assert file.metadata() == {"format": "pt", "more": '{"b": "a"}'}


def test_a_type_without_a_name_is_refused_by_name():
    with pytest.raises(CheckpointError, match=r"'wave'[\s\S]*complex128"):
        TensorFile.of({"wave": torch.zeros(2, dtype=torch.complex128)})


def test_memory_of_a_large_file_is_handed_out_in_whole_pages():
    memory = allocate(2 * PIECE + 5)
    pieces = list(split_in_pieces(memoryview(memory)))
    assert [len(piece) for piece in pieces] == [PIECE, PIECE, 5]
    assert PIECE % mmap.PAGESIZE == 0
