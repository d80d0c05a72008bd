"""The arguments that differ from those of a checkpoint, and what each difference means for the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .extras import list_declarations
from .resume_rules import ChangedArgument, ResumeContext, shorten


@dataclass(frozen=True)
class Change:
    """One argument whose value is not the checkpoint's."""

    name: str
    before: Any
    now: Any
    outcome: str  # which of the two is used, and what follows
    same_numbers: bool | None  # whether the run stays bit for bit the same; None: it depends on the data
    reorders: bool = False  # whether the rows of the epoch that is resumed come in another order


def find_changes(cls: type, before: Mapping[str, Any], now: Mapping[str, Any], context: ResumeContext) -> list[Change]:
    """Return every argument that differs from the checkpoint's and matters to the numbers.

    Args:
        cls: The class of the arguments, whose declarations say what a change means.
        before: The checkpoint's arguments as plain data (`TrainingArguments.to_dict`). Those it lacks are left out.
        now: The present arguments as plain data.
        context: Facts about the run.

    Returns:
        The changes, in the order of the arguments.

    Example:
        >>> from ostinato import TrainingArguments
        >>> context = ResumeContext(steps_before=8, steps_now=8)
        >>> changes = find_changes(TrainingArguments, {"max_grad_norm": 1.0}, {"max_grad_norm": 0.5}, context)
        >>> [change.outcome for change in changes]
        ['now 0.5: other numbers from here on']
    """
    found = []
    for name, declaration in list_declarations(cls).items():
        if declaration.on_resume is None or name not in before or name not in now or before[name] == now[name]:
            continue
        outcome = declaration.on_resume(ChangedArgument(name, before, now, context))
        if outcome is not None:
            found.append(Change(name, before[name], now[name], outcome.text, outcome.same_numbers, outcome.reorders))
    return found


def format_changes(changes: Sequence[Change]) -> list[str]:
    """Return the changes as aligned lines.

    >>> format_changes([Change("max_grad_norm", 1.0, 0.5, "now 0.5: other numbers from here on", False)])
    ['max_grad_norm  1.0 → 0.5  now 0.5: other numbers from here on']
    """
    rows = [(one.name, f"{shorten(one.before)} → {shorten(one.now)}", one.outcome) for one in changes]
    name, values = (max((len(row[column]) for row in rows), default=0) for column in range(2))
    return [f"{row[0]:{name}}  {row[1]:{values}}  {row[2]}" for row in rows]


def summarize_changes(changes: Sequence[Change]) -> list[str]:
    """Return a line if the run cannot stay bit for bit the same; otherwise nothing."""
    different = [one.name for one in changes if one.same_numbers is False]
    if not different:
        return []
    return [f"from here on this cannot be bit for bit the run as it was: {', '.join(different)}"]
