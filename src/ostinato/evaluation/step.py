"""What counts as loss, logits and labels of one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core.protocols import Batch
from ..core.tree import detach
from ..loss.model_outputs import as_tensor


def prediction_step(
    model: nn.Module,
    inputs: Batch,
    *,
    loss_only: bool,
    ignore_keys: list[str],
    label_names: list[str],
    can_return_loss: bool,
    loss_and_outputs: Callable[[nn.Module, Batch], tuple[Tensor | None, Any]],
    source: str = "the model",
    names: OutputNames | None = None,
) -> tuple[Tensor | None, Any, Any]:
    """Loss, logits and labels of one batch, detached; logits are the outputs that are not the loss.

    Labels are () where there are none by name and the loss needs none, and None where they are missing.
    What the model calls them is noted in `names`, since a user's own step returns these three and no more.
    """
    has_labels = bool(label_names) and all(inputs.get(name) is not None for name in label_names)
    wants_loss = inputs.get("return_loss")
    loss_without_labels = not label_names and bool(can_return_loss if wants_loss is None else wants_loss)
    loss = labels = None
    with torch.no_grad():
        if has_labels or loss_without_labels:
            labels = _single(detach(tuple(inputs.get(name) for name in label_names)))
            loss, outputs = loss_and_outputs(model, inputs)
            loss = None if loss is None else as_tensor(loss, source).detach().mean()
        else:
            outputs = model(**inputs)
    if loss_only:
        return loss, None, None
    logits = _single(detach(logits_of(outputs, ignore_keys, has_loss=loss is not None)))
    if names is not None:
        names.note(logits, names_of(outputs, ignore_keys, has_loss=loss is not None))
    return loss, logits, labels


def logits_of(outputs: Any, ignore_keys: list[str], *, has_loss: bool) -> tuple[Any, ...]:
    """Everything a model returns besides its loss. A bare tensor is logits."""
    if isinstance(outputs, Mapping):
        hidden = _hidden(outputs, ignore_keys, has_loss=has_loss)
        return tuple(value for name, value in outputs.items() if name not in hidden)
    if isinstance(outputs, Tensor):
        return (outputs,)
    return tuple(outputs[1:]) if has_loss and _starts_with_number(outputs) else tuple(outputs)


def names_of(outputs: Any, ignore_keys: list[str], *, has_loss: bool) -> tuple[str, ...] | None:
    """What a model calls that; None where it has no names for it.

    >>> names_of({"loss": 1, "logits": 2, "hidden": 3}, [], has_loss=True)
    ('logits', 'hidden')
    """
    if not isinstance(outputs, Mapping):
        return ("logits",) if isinstance(outputs, Tensor) else None
    hidden = _hidden(outputs, ignore_keys, has_loss=has_loss)
    return tuple(str(name) for name in outputs if name not in hidden)


def _hidden(outputs: Mapping[Any, Any], ignore_keys: list[str], *, has_loss: bool) -> set[str]:
    return {*ignore_keys, "loss"} if has_loss or outputs.get("loss", 0) is None else set(ignore_keys)


class OutputNames:
    """What the outputs of the last batch are called. Holds for the very object that the step returned.

    >>> names, logits = OutputNames(), torch.ones(2)
    >>> names.note(logits, ("logits",))
    >>> names.of(logits), names.of(2 * logits)
    (('logits',), None)
    """

    def __init__(self) -> None:
        self._of: tuple[int, tuple[str, ...] | None] = (0, None)

    def note(self, logits: Any, names: tuple[str, ...] | None) -> None:
        """Remember the names, and nothing of the logits."""
        self._of = (id(logits), names)

    def of(self, logits: Any) -> tuple[str, ...] | None:
        """The names of these logits; None if a user's own step has put others in their place."""
        whose, names = self._of
        return names if whose == id(logits) else None


def _starts_with_number(outputs: Any) -> bool:
    """A tuple whose first entry is a single number starts with its loss."""
    return isinstance(outputs[0], Tensor) and outputs[0].dim() == 0


def _single(parts: tuple[Any, ...]) -> Any:
    return parts[0] if len(parts) == 1 else parts


def ignored_at_inference(model: nn.Module) -> list[str]:
    """Outputs that a transformers configuration declares of no interest to metrics."""
    config = getattr(model, "config", None)
    return list(getattr(config, "keys_to_ignore_at_inference", None) or [])
