"""Add notes to the user's own exceptions: where it happened, with what, and which checkpoint is safe."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import add_note
from ..core.out_of_memory import is_out_of_memory
from ..core.tree import first_dimension
from .context import FailureContext, describe_tree

_OUT_OF_MEMORY = "ostinato: out of memory: "


@dataclass(frozen=True)
class MemorySettings:
    """The settings that determine how much memory a batch takes."""

    batch_size: int
    accumulation: int | None  # None in evaluation, which keeps no gradients
    gradient_checkpointing: bool = False
    half_precision: bool = False

    @property
    def advice(self) -> str:
        smaller = max(self.batch_size // 2, 1)
        if self.accumulation is None:
            return (
                f"set per_device_eval_batch_size={smaller}, or pass a preprocess_logits_for_metrics= that returns "
                "less than the logits"
            )
        more = [] if self.gradient_checkpointing else ["gradient_checkpointing=True"]
        more += [] if self.half_precision else ["bf16=True"]
        also = f"; {' and '.join(more)} save{'s' if len(more) == 1 else ''} more" if more else ""
        if smaller == self.batch_size:
            return f"the batch has only one row{also or '; use a smaller model, shorter rows or LoRA'}"
        return (
            f"per_device_train_batch_size={smaller} with gradient_accumulation_steps={self.accumulation * 2} computes "
            f"the same updates with half the rows in memory{also}"
        )


def note_batch(error: BaseException, context: FailureContext, where: str, memory: MemorySettings) -> None:
    """Note which batch failed, and a hint where the message is known."""
    rows = first_dimension(context.batch)
    which = f", {context.describe_rows(range(rows))}" if rows and context.rows() else f" of the {context.data}"
    add_note(error, f"ostinato: {where}{which}: {describe_tree(context.columns)}")
    if is_out_of_memory(error):
        add_note(error, f"{_OUT_OF_MEMORY}{memory.advice}")
    for pattern, hint in _HINTS:
        if re.search(pattern, str(error)):
            add_note(error, f"ostinato: {hint}")


def has_memory_note(error: BaseException) -> bool:
    """Return whether a note tells already where memory was lacking: an evaluation adds its own."""
    return any(note.startswith(_OUT_OF_MEMORY) for note in getattr(error, "__notes__", ()))


_HINTS = [
    (
        r"'dict' object has no attribute '\w+'",
        "the model returns a dict: use outputs['logits'] instead of outputs.logits",
    ),
    (
        r"Expected all tensors to be on the same device",
        "create tensors in forward on the device of the inputs: torch.zeros(n, device=x.device)",
    ),
    (
        r"all elements of input should be between 0 and 1",
        "binary_cross_entropy takes probabilities; for logits, use binary_cross_entropy_with_logits",
    ),
    (
        r"Expected more than 1 value per channel when training",
        "batch normalization needs two rows: dataloader_drop_last=True drops a last batch of one row",
    ),
    (
        r"Trying to backward through the graph a second time",
        "the model keeps a tensor of the previous batch: call .detach() on it",
    ),
]


def note_function(error: BaseException, name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Note the arguments of a user's function."""
    add_note(error, f"ostinato: {name} ({get_callable_name(function)}) received {describe_tree(given)}")
    if isinstance(given.get("predictions"), tuple):
        add_note(
            error,
            "ostinato: predictions is a tuple of all outputs besides the loss; predictions[0] is the first",
        )


def get_callable_name(function: Any) -> str:
    """Return the name of a function, or of the class of a callable object.

    >>> get_callable_name(len), get_callable_name(lambda p: p)
    ('len', '<lambda>')
    """
    return getattr(function, "__name__", None) or type(function).__name__


def note_checkpoint(error: BaseException, checkpoint: str) -> None:
    """Note the checkpoint from which training can be resumed."""
    add_note(error, f"ostinato: {checkpoint} is complete: train(resume_from_checkpoint=True) resumes from it")
