"""One step of a schedule that can be taken back."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ScheduleStep:
    """A schedule before its step, and what the step changed in the parameter groups."""

    schedule: Any
    state: dict[str, Any]
    changes: list[tuple[dict[str, Any], str, Any, Any]]  # group, option, value before and after

    @classmethod
    def take(cls, schedule: Any) -> ScheduleStep:
        """Step a schedule."""
        groups = schedule.optimizer.param_groups
        state, before = copy.deepcopy(schedule.state_dict()), [_get_options(group) for group in groups]
        schedule.step()
        changes = [
            (group, name, options[name], value)
            for group, options in zip(groups, before, strict=True)
            for name, value in _get_options(group).items()
            if name in options and options[name] is not value
        ]
        return cls(schedule, state, changes)

    def undo(self) -> None:
        """Set the schedule and its options back; those that others have changed since stay as they are."""
        self.schedule.load_state_dict(self.state)
        for group, name, before, after in self.changes:
            if group[name] is after:
                group[name] = before


def _get_options(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}
