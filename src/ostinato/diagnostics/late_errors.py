"""Explain what a device reports late: an index out of range, in a batch that it was given some time before.

The error names neither the index nor the batch, and the device answers nothing more. So the batches that it may be
about are checked on the host: their columns first, and then by computing them there. Weights do not matter for that.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..core import accelerator
from ..core.errors import OstinatoError, add_note
from ..core.logged_numbers import collect_numbers
from ..core.tree import first_dimension
from .context import FailureContext, describe_tree
from .failures import name_mistake
from .model_heads import find_mistake

MAX_QUEUED = 32  # batches that the host may have launched before the device tells of a failure
MAX_NAMED = 8  # of the batches among which the mistake was not found
MAX_COPIED = 4 * 2**30  # bytes of weights; of a larger model, columns alone are checked
RESTART = "the device cannot be used any more: restart the process"

ComputeLoss = Callable[[nn.Module, Any], Any]


@dataclass(frozen=True)
class Suspect:
    """A batch that was given to the device before it failed, and when: `at step 3 of 10`."""

    context: FailureContext
    where: str

    @property
    def is_on_host(self) -> bool:
        values = self.context.columns.values() or [self.context.batch]
        return all(value.is_cpu for value in values if isinstance(value, Tensor))

    def describe(self) -> str:
        rows = first_dimension(self.context.batch)
        which = f", {self.context.describe_rows(range(rows))}" if rows and self.context.rows() else ""
        return f"{self.where}{which}: {describe_tree(self.context.columns)}"


def explain_late_failure(error: Exception, suspects: Iterable[Suspect], compute_loss: ComputeLoss) -> Exception:
    """Return the mistake of the first batch that has one; else the error, with a note of the batches in question."""
    if (known := _find_explained(error)) is not None:
        return known
    batches: deque[Suspect] = deque(maxlen=MAX_NAMED)
    for suspect in _read_safely(suspects):
        batches.append(suspect)
        mistake = _find_mistake(suspect, compute_loss) if suspect.is_on_host else None
        if mistake is not None:
            mistake.__cause__ = None
            add_note(mistake, f"ostinato: {suspect.where}. The device reported it late; {RESTART}")
            return mistake
    for suspect in batches:
        add_note(error, f"ostinato: it may be about the batch {suspect.describe()}")
    add_note(error, f"ostinato: {RESTART}. With use_cpu=True the error is raised where it happens")
    return error


@contextmanager
def prefer_explanation() -> Iterator[None]:
    """Raise the explanation of a failure, and not what is raised afterwards by code that still uses the device."""
    try:
        yield
    except Exception as error:
        known = _find_explained(error) if accelerator.has_failed(error) else None
        if known is None:
            raise
        raise known from known.__cause__


def _find_explained(error: BaseException) -> OstinatoError | None:
    """Return the explanation after which the error was raised, by code that still used the device."""
    before = error.__context__
    while before is not None and not isinstance(before, OstinatoError):
        before = before.__context__
    return before


def _read_safely(suspects: Iterable[Suspect]) -> Iterator[Suspect]:
    """Yield batches until reading them again fails."""
    with suppress(Exception):
        yield from suspects


def _find_mistake(suspect: Suspect, compute_loss: ComputeLoss) -> OstinatoError | None:
    context = suspect.context
    try:
        found = find_mistake(context)
        return found if found is not None else _find_by_computing(context, compute_loss)
    except Exception:  # if the explanation fails, the user has to see the original exception
        return None


def _find_by_computing(context: FailureContext, compute_loss: ComputeLoss) -> OstinatoError | None:
    """Compute the loss of a batch on the host, where an index out of range is reported by the layer that has it."""
    model = _copy_to_host(context.inner)
    if model is None:
        return None
    batch = dict(context.batch) if context.columns else context.batch
    try:
        with torch.no_grad(), collect_numbers(None):
            compute_loss(model, batch)
    except Exception as error:
        named = None if accelerator.has_failed(error) else name_mistake(error, replace(context, model=model))
        return None if named is None else named[0]
    return None


def _copy_to_host(model: nn.Module) -> nn.Module | None:
    """Return a copy of a model on the CPU, with zeros for weights that cannot be read; None if it is too large."""
    tensors = [*model.parameters(), *model.buffers()]
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors) > MAX_COPIED:
        return None
    known: dict[int, Any] = {}
    for tensor in tensors:
        zeros = torch.zeros(tensor.shape, dtype=tensor.dtype)
        is_parameter = isinstance(tensor, nn.Parameter)
        known[id(tensor)] = nn.Parameter(zeros, tensor.requires_grad) if is_parameter else zeros
    return copy.deepcopy(model, known)
