"""The result of a model or a user's function: where its loss is, and the errors when there is none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

from torch import Tensor

from ..core.errors import ModelOutputError

_HOW = "let forward return {'loss': ..., 'logits': ...}"


class NoLossError(ModelOutputError):
    """Named outputs of a model, none of which is a loss."""

    returned: tuple[str, ...] = ()  # the names of its outputs


class LossTypeError(ModelOutputError, TypeError):
    """A value in place of a loss that is not a tensor (transformers raises TypeError here)."""


class LossShapeError(ModelOutputError, RuntimeError):
    """A loss of several numbers (torch raises RuntimeError here)."""


class BareTensorError(LossShapeError):
    """A single tensor from a model that no function turns into a loss. Evaluation works without one."""

    def __init__(self, outputs: Tensor) -> None:
        self.outputs = outputs
        super().__init__(
            what=f"The model returned one tensor of shape {tuple(outputs.shape)}, which is not a loss",
            why="a bare tensor is taken for logits; only a single number can be a loss",
            fix=f"pass compute_loss_func=my_loss, or {_HOW}",
        )

    def __reduce__(self) -> Any:
        return type(self), (self.outputs,)


def loss_of(outputs: Any, inputs: Mapping[str, Any]) -> Tensor:
    """Return the loss among a model's outputs: the entry named "loss", or the first of a tuple."""
    if isinstance(outputs, Mapping):
        if "loss" not in outputs or outputs["loss"] is None:
            raise _build_no_loss_error(outputs, inputs)
        return outputs["loss"]
    if isinstance(outputs, Tensor):
        if outputs.dim() == 0:
            return outputs
        raise BareTensorError(outputs)
    if outputs is None or (isinstance(outputs, (tuple, list)) and not outputs):
        raise LossTypeError(
            what="The model returned nothing",
            why=f"forward was given {', '.join(inputs)} and returned {outputs!r}; is there a return at its end?",
            fix=_HOW,
        )
    if isinstance(outputs, (tuple, list)):
        return outputs[0]
    raise LossTypeError(
        what=f"The model returned a {type(outputs).__name__}, in which no loss can be found",
        why="a loss is looked for under 'loss' in a dict, or in the first place of a tuple",
        fix=_HOW,
    )


def require_number(loss: Any, source: str) -> Tensor:
    """Return the loss as a single number; `source` names the function that computed it."""
    loss = as_tensor(loss, source)
    if loss.dim() == 0:
        return loss
    if loss.numel() == 1:
        return loss.reshape(())
    shape = tuple(loss.shape)
    raise LossShapeError(
        what=f"the loss is {loss.numel()} numbers, of shape {shape}, and must be one",
        why=f"{source} returned it: a loss per row, or logits in the first place of a tuple",
        fix="take its mean: loss.mean(), or reduction='mean' in the loss function; a tuple starts with the loss",
    )


def split_loss(loss: Any, source: str) -> tuple[Any, dict[str, Tensor]]:
    """Return a loss and the named losses that make it up: it is their sum, unless one is called "loss".

    >>> import torch
    >>> split_loss({"ce": torch.tensor(2.0), "kl": torch.tensor(1.0)}, "compute_loss")[0]
    tensor(3.)
    """
    if type(loss) is not dict and not isinstance(loss, Mapping):  # a check against an abstract class takes longer
        return loss, {}
    parts = {
        str(name): value
        if isinstance(value, Tensor) and value.dim() == 0  # nearly always
        else require_number(value, f"{source}, as {name!r},")
        for name, value in loss.items()
    }
    if not parts:
        raise LossTypeError(f"{source} returned an empty dict", "it has no loss", "return {'ce': ..., 'kl': ...}")
    total = parts.pop("loss") if "loss" in parts else reduce(add, parts.values())
    return total, parts


def as_tensor(loss: Any, source: str) -> Tensor:
    """Return the loss if it is a tensor; raise if not."""
    if not isinstance(loss, Tensor):
        raise _build_type_error(loss, source)
    return loss


def split_result(result: Any, source: str) -> tuple[Any, Any]:
    """Return loss and outputs as `compute_loss(..., return_outputs=True)` has to return them; raise if it did not."""
    if isinstance(result, (tuple, list)) and len(result) == 2:
        return result[0], result[1]
    raise LossTypeError(
        what=f"{source} did not return the model's outputs in evaluation",
        why=f"it was called with return_outputs=True and returned a {type(result).__name__}",
        fix="end it with: return (loss, outputs) if return_outputs else loss",
    )


def _build_no_loss_error(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> NoLossError:
    names = [name for name in outputs if name != "loss"]
    error = NoLossError(
        what=f"The model did not return a loss from the inputs, only the following keys: {','.join(names)}",
        why=f"it received {', '.join(inputs)}, and its output has no 'loss'",
        fix=f"{_HOW}, pass compute_loss_func=, or see that labels have forward's names (label_names)",
    )
    error.returned = tuple(names)
    return error


def _build_type_error(loss: Any, source: str) -> LossTypeError:
    kind = type(loss).__name__
    if loss is None:
        return LossTypeError(
            what="the loss is None",
            why=f"{source} returned nothing; is there a return at its end?",
            fix="return the loss, a tensor of one number",
        )
    if isinstance(loss, (tuple, list)):
        return LossTypeError(
            what=f"the loss is a {kind} of {len(loss)}",
            why=f"{source} returned it, although return_outputs is False in training",
            fix="end it with: return (loss, outputs) if return_outputs else loss",
        )
    if isinstance(loss, (int, float)):
        return LossTypeError(
            what=f"the loss is a {kind}, not a tensor",
            why=f"{source} returned {loss:.4g}, a number that no longer knows how it was computed",
            fix="return the tensor itself: leave out .item(), float() and .numpy()",
        )
    return LossTypeError(
        what=f"the loss is a {kind}, not a tensor",
        why=f"{source} returned it",
        fix="return a tensor of one number",
    )
