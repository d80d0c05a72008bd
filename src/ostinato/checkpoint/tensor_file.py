"""The layout of a `.safetensors` file, written without a copy of all its bytes.

    8 bytes: length of the header; the header, JSON padded with spaces; the numbers of one tensor after the other

The order (the widest types first, then by name) and the form of the header are those of the safetensors library, so
both write the same bytes. Memory for a file is mapped at page boundaries: it can be passed to the disk as it is (see
`disk.Disk.write`).
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import torch

from ..core.errors import CheckpointError

PIECE = 16 * 2**20  # bytes passed to the disk at a time; whole pages

# In the order in which the library writes them to a file. Older versions of torch have fewer.
_TYPES = {
    "uint64": "U64", "int64": "I64", "float64": "F64", "complex64": "C64", "float32": "F32", "uint32": "U32",
    "int32": "I32", "bfloat16": "BF16", "float16": "F16", "uint16": "U16", "int16": "I16",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
_RANKS = {
    getattr(torch, name): (rank, code) for rank, (name, code) in enumerate(_TYPES.items()) if name in vars(torch)
}


@dataclass(frozen=True)
class TensorFile:
    """Tensors, and the offsets of their numbers in a file."""

    header: bytes
    places: list[tuple[int, torch.Tensor]]
    size: int
    sources: tuple[torch.Tensor, ...] = ()  # the given tensors, in the order of the file

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> TensorFile:
        """Lay out a file.

        >>> TensorFile.of({"weight": torch.zeros(2)}).size  # doctest: +SKIP
        72
        """
        described: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
        found, sources, end = [], [], 0
        for name in sorted(tensors, key=lambda name: (_find_type(tensors[name], name)[0], name)):
            tensor = tensors[name].detach()
            begin, end = end, end + tensor.numel() * tensor.element_size()
            code = _find_type(tensor, name)[1]
            described[name] = {"dtype": code, "shape": list(tensor.shape), "data_offsets": [begin, end]}
            found.append((begin, tensor))
            sources.append(tensors[name])
        text = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        header = len(text).to_bytes(8, "little") + text
        places = [(len(header) + begin, tensor) for begin, tensor in found]
        return cls(header, places, len(header) + end, tuple(sources))

    def copy_into(self, memory: torch.Tensor) -> memoryview:
        """Fill memory (a tensor of bytes) with the file; return the part of it that is the file.

        A device fills pinned memory without a wait: it has done so when it comes to what it is given next.
        """
        content, is_pinned = memory.numpy().data[: self.size], memory.is_pinned()
        content[: len(self.header)] = self.header
        for place, tensor in self.places:
            if tensor.numel():
                _view_region(memory, place, tensor).copy_(tensor, non_blocking=is_pinned)
        return content

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield the file, tensor by tensor, from the tensors' own memory where that is possible."""
        yield self.header
        for _, tensor in self.places:
            if tensor.numel():
                yield view_bytes(tensor)

    def pages(self, memory: mmap.mmap) -> Iterator[memoryview]:
        """Yield the file in pieces that begin at page boundaries, through a small buffer that every piece reuses."""
        room, filled = memoryview(memory), 0
        for piece in self.pieces():
            rest = memoryview(piece)
            while rest:
                taken = min(len(rest), len(room) - filled)
                room[filled : filled + taken] = rest[:taken]
                filled, rest = filled + taken, rest[taken:]
                if filled == len(room):
                    yield room
                    filled = 0
        if filled:
            yield room[:filled]


def allocate(size: int) -> mmap.mmap:
    """Allocate memory at a page boundary that forked children (workers of a data loader) neither have nor copy."""
    if os.name == "nt":
        return mmap.mmap(-1, size)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if "MADV_DONTFORK" in vars(mmap):
        with suppress(OSError):  # a kernel that does not support it
            memory.madvise(mmap.MADV_DONTFORK)
    return memory


def split_in_pieces(content: memoryview) -> Iterator[memoryview]:
    """Yield memory that holds a whole file, in pieces for the disk."""
    for begin in range(0, len(content), PIECE):
        yield content[begin : begin + PIECE]


def _find_type(tensor: torch.Tensor, name: str) -> tuple[int, str]:
    if tensor.dtype not in _RANKS:
        raise CheckpointError(
            what=f"cannot save {name!r}",
            why=f"it is a tensor of {tensor.dtype}, which the safetensors format does not support",
            fix="convert it to a common type",
        )
    return _RANKS[tensor.dtype]


def _view_region(memory: torch.Tensor, place: int, like: torch.Tensor) -> torch.Tensor:
    """Return the memory of a tensor in a file. Wider types come first, so every offset is aligned for its type."""
    return memory[place : place + like.numel() * like.element_size()].view(like.dtype).view(like.shape)


def view_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor, in the order of a file."""
    plain = tensor.to("cpu").resolve_conj().resolve_neg().contiguous()
    numbers = torch.view_as_real(plain) if plain.is_complex() else plain
    # torch keeps any stride for a tensor of a single number.
    return numbers.as_strided((numbers.numel(),), (1,)).view(torch.uint8).numpy().data
