"""Compare runs step by step: fingerprint_tree of all that a step depends on, and the first that differs.

Fingerprints, because two runs cannot be in memory at once. Two values have the same one if and only if they are the
same, bit for bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..checkpoint.state_objects import describe_object
from ..core.random import RandomState

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass
class StepRecord:
    """What a step begins with and what it computes, in the order in which it happens."""

    step: int
    weights: dict[str, str] = field(default_factory=dict)  # parameters and buffers, before the step
    optimizer: dict[str, str] = field(default_factory=dict)
    schedule: dict[str, str] = field(default_factory=dict)
    callbacks: dict[str, str] = field(default_factory=dict)
    batch: dict[str, str] = field(default_factory=dict)
    streams: dict[str, str] = field(default_factory=dict)  # of random numbers, once the batch is read
    loss: float | None = None  # None in the last record, which is made after the last step

    def begin(self, model: nn.Module, optimizer: Any, parts: Mapping[str, Any], callbacks: Mapping[str, Any]) -> None:
        """Record what the step depends on. `parts` are the schedule and others with a state of plain values."""
        self.weights = fingerprint_weights(model)
        self.optimizer = fingerprint_optimizer(optimizer, model)
        self.schedule = dict(fingerprint_tree(parts))
        self.callbacks = dict(fingerprint_tree(callbacks))
        self.streams = dict(fingerprint_tree(vars(RandomState.capture())))


@dataclass(frozen=True, order=True)
class Difference:
    """A difference between two runs, and when it occurs; sorts by time."""

    record: int  # the index of the first record that differs
    part: int  # the index of the part of the record
    text: str


def find_first_difference(whole: Sequence[StepRecord], repeated: Sequence[StepRecord]) -> Difference | None:
    """Return the first difference between a run and its repetition; None if they are equal.

    >>> find_first_difference([StepRecord(4, loss=0.5)], [StepRecord(4, loss=0.25)]).text
    'the loss of step 4 is 0.25 instead of 0.5'
    """
    for number, (was, now) in enumerate(zip(whole, repeated, strict=False)):
        when = "right after loading" if number == 0 else f"after step {was.step - 1}"
        step = was.step
        found = [
            _find_difference(was.weights, now.weights, f"{{}} is different {when}"),
            _find_difference(was.optimizer, now.optimizer, f"the optimizer's {{}} is different {when}"),
            _find_difference(was.schedule, now.schedule, f"{{}} is different {when}"),
            _find_difference(was.callbacks, now.callbacks, f"the state of the callback {{}} is different {when}"),
            _find_difference(was.batch, now.batch, f"the batch of step {step} has other rows or values: {{}}"),
            _find_difference(
                was.streams, now.streams, f"the random numbers of step {step} differ: the stream of {{}}"
            ),
            None if _is_same(was.loss, now.loss) else f"the loss of step {step} is {now.loss} instead of {was.loss}",
        ]
        part = next((part for part, text in enumerate(found) if text is not None), None)
        if part is not None:
            return Difference(number, part, found[part] or "")
    if len(whole) == len(repeated):
        return None
    shorter = min(len(whole), len(repeated))
    missing = max(whole, repeated, key=len)[shorter].step
    taken = "not taken" if len(repeated) < len(whole) else "taken"
    return Difference(shorter, 0, f"step {missing} was {taken} when the run was repeated")


def _is_same(loss: float | None, other: float | None) -> bool:
    return loss == other or (loss != loss and other != other)  # NaN is not equal to itself


def _find_difference(before: Mapping[str, str], after: Mapping[str, str], text: str) -> str | None:
    name = next((name for name in {**before, **after} if before.get(name) != after.get(name)), None)
    return None if name is None else text.format(name)


# ---- fingerprints -----------------------------------------------------------------------------------------------


def fingerprint_weights(model: nn.Module) -> dict[str, str]:
    """Return the fingerprints of parameters, and of the buffers that are saved with them."""
    saved = set(model.state_dict())
    found = {f"the parameter {name}": one for name, one in model.named_parameters()}
    found |= {f"the buffer {name}": one for name, one in model.named_buffers() if name in saved}
    return {name: fingerprint(tensor) for name, tensor in found.items()}


def fingerprint_optimizer(optimizer: Any, model: nn.Module) -> dict[str, str]:
    """Return the fingerprints of the optimizer's state of each parameter, and of the settings of its groups."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, str] = {}
    for number, group in enumerate(optimizer.param_groups):
        settings = {name: value for name, value in group.items() if name != "params"}
        found |= {f"{path} of group {number}": print_ for path, print_ in fingerprint_tree(settings)}
        for parameter in group["params"]:
            name = names.get(id(parameter), "a parameter that the model does not have")
            state = optimizer.state.get(parameter, {})
            found |= {f"{path} of {name}": print_ for path, print_ in fingerprint_tree(state)}
    return found


def fingerprint_tree(tree: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fingerprint of every number and text in nested containers, by its path."""
    if (described := describe_object(tree)) is not None:
        yield from fingerprint_tree(described.fields, path)
    elif isinstance(tree, Mapping):
        for number, (key, value) in enumerate(tree.items()):
            name = f"parameter {number}" if isinstance(key, Tensor) else str(key)
            yield from fingerprint_tree(value, f"{path}.{name}" if path else name)
    elif isinstance(tree, (list, tuple)) and not (tree and all(isinstance(one, _PLAIN) for one in tree)):
        for number, value in enumerate(tree):
            yield from fingerprint_tree(value, f"{path}[{number}]")
    elif isinstance(tree, (Tensor, np.ndarray, np.generic, list, tuple, *_PLAIN)):
        yield path, fingerprint(tree)


def fingerprint(value: Any) -> str:
    """Return a digest that is equal for equal values, on any device.

    >>> fingerprint(torch.tensor([0.0])) == fingerprint(torch.tensor([-0.0]))
    False
    """
    if isinstance(value, Tensor):
        to_local = getattr(value, "to_local", None)  # of a tensor that is divided among processes
        plain = (value if to_local is None else to_local()).detach().cpu().resolve_conj().resolve_neg()
        plain = plain.to_dense() if plain.layout != torch.strided else plain
        flat = plain.contiguous().as_strided((plain.numel(),), (1,))  # a tensor of one element may have any stride
        content: Any = flat.view(torch.uint8).numpy() if plain.numel() else b""
        kind = f"{value.dtype} {tuple(value.shape)}"
    elif isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        content, kind = np.ascontiguousarray(array).tobytes(), f"{array.dtype} {array.shape}"
    else:
        content, kind = repr(value).encode(), ""
    return f"{kind} {hashlib.sha256(content).hexdigest()}"
