"""Detection of NaN and infinite numbers: they are reported at once and do not reach the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from ..core.errors import DataError, NonFiniteError
from ..core.notices import note, warn
from ..core.protocols import Batch


class NonFiniteInputError(DataError, NonFiniteError):
    """NaN or infinity in the data of the first step."""


@dataclass
class NonFiniteGuard:
    """Skip updates with a NaN or infinite loss or gradient, and raise after `patience` of them in a row."""

    patience: int
    rows_of: Callable[[int, range], list[int] | None]  # (epoch, batch numbers) -> dataset indices, where known
    # Describes which inputs are not finite themselves, given the batches and their rows.
    blame: Callable[[Sequence[Batch], list[int] | None], str] = lambda batches, rows: ""
    judges_loss: bool = True  # False with several processes: all must decide alike, and only the norm is shared
    in_a_row: int = 0
    first_step: int = 0
    refused: int = 0  # in the whole run
    overflows: int = 0  # in the whole run: steps that were skipped because of the scale of gradients

    def add_up(self, grad_norm: Tensor | float | None, losses: list[Tensor]) -> Tensor | float:
        """Return a number that is finite if everything is. Nothing is read from the device."""
        total = grad_norm if grad_norm is not None else 0.0
        if self.judges_loss:
            for loss in losses:
                total = total + loss
        return total

    def is_finite(self, total: Tensor | float) -> bool:
        """Return whether everything is finite, given the sum of it: only one number is read."""
        finite = math.isfinite(total)
        if finite:
            self.in_a_row = 0
        return finite

    def count_overflow(self, step: int) -> None:
        """Count a step that was skipped because float16 gradients overflowed.

        This is part of finding their scale, and no error. It is reported once.
        """
        self.overflows += 1
        if self.overflows == 1:
            note(
                f"step {step}: gradients overflowed float16; the update is skipped and their scale halved. This is "
                "how fp16=True finds the scale; further skipped updates are counted and reported at the end"
            )

    def export_progress(self) -> dict[str, int]:
        """Return the counts of earlier steps that a resumed run needs."""
        counts = {"in_a_row": self.in_a_row, "first_step": self.first_step}
        return {**counts, "all": self.refused, "overflows": self.overflows}

    def restore(self, progress: Mapping[str, int]) -> None:
        """Continue the counts of a saved run."""
        self.in_a_row, self.first_step, self.refused = progress["in_a_row"], progress["first_step"], progress["all"]
        self.overflows = progress.get("overflows", 0)

    def refuse(
        self,
        *,
        step: int,
        losses: list[float],
        grad_norm: float,
        epoch: int,
        batches: range,
        contents: Sequence[Batch] = (),
    ) -> None:
        """Report the step and its rows; raise after `patience` such steps in a row."""
        self.in_a_row += 1
        self.refused += 1
        if self.in_a_row == 1:
            self.first_step = step
        rows = self.rows_of(epoch, batches)
        where = f"rows {_shorten(rows)} of the training set" if rows else f"batches {list(batches)} of epoch {epoch}"
        inputs = self.blame(contents, rows)
        if inputs:
            where += f" ({inputs})"
        found = f"loss {', '.join(f'{loss:g}' for loss in losses)}, gradient norm {grad_norm:g}"
        if inputs and step == 1:  # no step is lost yet, and the data are the cause
            raise NonFiniteInputError(
                what=f"step 1: {found}: the data are not finite",
                why=inputs,
                fix="fill or drop what is missing in the data, and check what is divided or taken the log of",
            )
        if self.in_a_row >= max(self.patience, 1):
            raise NonFiniteError(
                what=f"step {step}: {found}; {self.in_a_row} step(s) in a row were not finite, "
                f"the first was step {self.first_step}",
                why=f"computed from {where}; these updates were skipped, so the weights are those of step "
                f"{self.first_step - 1}",
                fix="look at these rows, lower the learning rate, or raise nonfinite_patience to go on for longer",
            )
        warn(f"step {step}: {found}, from {where}; the update was skipped")


def _shorten(rows: list[int], limit: int = 16) -> str:
    shown = ", ".join(str(row) for row in rows[:limit])
    return shown if len(rows) <= limit else f"{shown}, … ({len(rows)} in all)"
