"""How much memory each process needs for parameters, gradients and optimizer state, by arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from ..checkpoint.space import format_size
from .render import Page, Printable, Section, format_count

Layout = Literal["none", "full", "hybrid"]

_BLOCK, _LEAST_QUANTIZED = 256, 4096  # numbers: those that share a scale; smaller parameters keep 32 bits
_SCALAR = 4  # bytes of a step count, or of a root mean square
_LAYOUTS: Mapping[Layout, str] = {
    "none": "the whole model in each process",
    "full": "divided among all processes",
    "hybrid": "divided among the processes of a host",
}


@dataclass(frozen=True)
class ProcessMemory:
    """The bytes in the process that holds most."""

    shard: Layout
    parts: int  # into which each parameter is divided
    parameters: int
    gradients: int  # of replicas: with DDP's copies, in which they are exchanged
    optimizer: int | None  # None: the optimizer's state is not known

    @property
    def total(self) -> int:
        """The sum of what is known."""
        return self.parameters + self.gradients + (self.optimizer or 0)


@dataclass(frozen=True, repr=False)
class MemoryPlan(Printable):
    """The memory of each process, for one or several ways to divide the model."""

    model: str
    processes: int
    hosts: int
    optimizer: str
    layouts: tuple[ProcessMemory, ...]

    def build_page(self) -> Page:
        return Page(f"Memory of each process that trains {self.model}", (self.build_section(),))

    def build_section(self) -> Section:
        """Return the table: a row for each way to divide the model."""
        where = format_count(self.processes, "process") + (f" on {self.hosts} hosts" if self.hosts > 1 else "")
        notes = ["Besides: activations, buffers, and when sharded the layers that are gathered."]
        if any(one.optimizer is None for one in self.layouts):
            notes.append(f"How much state {self.optimizer} keeps is not known: it is not part of the total.")
        return Section("memory", f"of each of {where}", (_HEAD, *map(_describe, self.layouts)), tuple(notes))


_HEAD = ("shard", "parameters", "gradients", "optimizer", "total", "")


def _describe(one: ProcessMemory) -> tuple[str, ...]:
    state = "unknown" if one.optimizer is None else format_size(one.optimizer)
    total = f"{'more than ' if one.optimizer is None else ''}{format_size(one.total)}"
    return one.shard, format_size(one.parameters), format_size(one.gradients), state, total, _LAYOUTS[one.shard]


def measure_layout(
    model: nn.Module, kind: type, options: Mapping[str, Any], *, shard: Layout, processes: int, parts: int
) -> ProcessMemory:
    """Return what the first process holds, which has the largest part of every parameter.

    Args:
        model: The model, in the number formats in which it is trained.
        kind: The optimizer's class.
        options: The optimizer's arguments.
        shard: How the model is divided.
        processes: All of them.
        parts: Into which each parameter is divided, along its first axis.

    >>> measure_layout(nn.Linear(3, 4), torch.optim.AdamW, {}, shard="full", processes=2, parts=2)
    ProcessMemory(shard='full', parts=2, parameters=32, gradients=32, optimizer=72)
    """
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    parameters = gradients = state = 0
    known = True
    for parameter in model.parameters():
        shape = _divide(tuple(parameter.shape), parts)
        size = math.prod(shape) * parameter.element_size()
        parameters += size
        if not parameter.requires_grad:
            continue
        gradients += size if parts > 1 or processes == 1 else 2 * size
        own = _count_state_bytes(kind, options, shape, parameter.element_size(), embedded=id(parameter) in embeddings)
        known, state = known and own is not None, state + (own or 0)
    return ProcessMemory(shard, parts, parameters, gradients, state if known else None)


def _divide(shape: tuple[int, ...], parts: int) -> tuple[int, ...]:
    """Return the shape of the largest part: FSDP divides the first axis, and rounds up."""
    return (-(-shape[0] // parts), *shape[1:]) if shape else shape


def _count_state_bytes(
    kind: type, options: Mapping[str, Any], shape: tuple[int, ...], width: int, *, embedded: bool
) -> int | None:
    """Return the bytes of state for a parameter whose numbers have `width` bytes; None for an unknown optimizer."""
    package, name, numbers = kind.__module__.partition(".")[0], kind.__name__, math.prod(shape)
    if (package, name) == (__name__.partition(".")[0], "Adafactor"):
        return sum(_list_adafactor_sizes(options, shape)) * max(width, 4) + _SCALAR
    averages = _count_averages(package, name, options)
    if averages is None:
        return None
    if package == "torch":
        return averages * numbers * width + (_SCALAR if name != "SGD" else 0)
    bits = _count_bits(package, name, options)
    if bits == 32 or numbers < _LEAST_QUANTIZED or (embedded and package == "bitsandbytes"):
        return averages * numbers * 4
    return averages * (numbers * bits // 8 + -(-numbers // _BLOCK) * 4)


def _list_adafactor_sizes(options: Mapping[str, Any], shape: tuple[int, ...]) -> Iterator[int]:
    """Yield the sizes of the tensors that our Adafactor keeps: means of rows and columns, if there are two axes."""
    if options.get("beta1") is not None:
        yield math.prod(shape)
    if len(shape) < 2:
        yield math.prod(shape)
    else:
        yield math.prod(shape[:-1])
        yield math.prod((*shape[:-2], shape[-1]))


def _count_averages(package: str, name: str, options: Mapping[str, Any]) -> int | None:
    """Return how many numbers an optimizer keeps for each that it trains; None if it is not known."""
    known = {
        ("torch", "Adam"): 2 + bool(options.get("amsgrad")),
        ("torch", "AdamW"): 2 + bool(options.get("amsgrad")),
        ("torch", "SGD"): int(bool(options.get("momentum"))),
        ("torch", "Adagrad"): 1,
        ("torch", "RMSprop"): 1 + bool(options.get("centered")) + bool(options.get("momentum")),
        ("torchao", "AdamW8bit"): 2,
        ("torchao", "AdamW4bit"): 2,
        ("bitsandbytes", "AdamW"): 2,
        ("bitsandbytes", "AdEMAMix"): 3,
        ("bitsandbytes", "Lion"): 1,
        ("bitsandbytes", "RMSprop"): 1,
    }
    return known.get((package, name))


def _count_bits(package: str, name: str, options: Mapping[str, Any]) -> int:
    if package == "torchao":
        return 4 if name == "AdamW4bit" else 8
    return int(options.get("optim_bits", 32))
