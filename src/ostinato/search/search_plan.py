"""What a search would try, and how long a trial takes; nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from ..arguments.trial_values import ArgumentValues, set_values
from ..diagnostics.run_plan import RunPlan, format_duration
from .backends import check_search
from .host import SearchHost
from .objective_value import choose_objective, name_objectives
from .recorded_trial import RecordedTrial
from .search_space import SearchSpace, list_parameters


class PlanHost(SearchHost, Protocol):
    """A trainer that can also be asked for its plan."""

    def plan(self) -> RunPlan: ...

    def rehearse(self) -> Any: ...


def describe_search(
    trainer: PlanHost, space: Any, objective: Any, num_trials: int | None, direction: str | Sequence[str]
) -> str:
    """Return the plan of a search as text, after trying a batch, an evaluation and a save.

    Raises:
        ConfigError: The search would be refused.
    """
    trainer.hp_space, trainer.compute_objective = space, choose_objective(objective)
    checked, directions = check_search(trainer, direction)
    parameters = list_parameters(checked)
    trainer.rehearse()
    pairs = zip(directions, name_objectives(trainer.compute_objective, len(directions)), strict=True)
    seconds = [_estimate(trainer, checked, "low"), _estimate(trainer, checked, "high")]
    return "\n".join(
        [
            f"{'' if num_trials is None else num_trials} trials, {', '.join(f'{one} {name}' for one, name in pairs)}",
            *(f"  {one!r}" for one in parameters),
            *_describe_times([one for one in seconds if one is not None], num_trials),
            f"in {trainer._output_path}: run-N of each trial, search/study.jsonl, search/models of the best",
        ]
    )


def _estimate(trainer: PlanHost, space: SearchSpace, end: Literal["low", "high"]) -> float | None:
    """Return the seconds of a trial with the lower or the upper ends of all ranges."""
    before = ArgumentValues(trainer.args)
    try:
        set_values(trainer.args, space.draw(RecordedTrial(end)))
        return trainer.plan().duration.total
    finally:
        before.restore()


def _describe_times(seconds: Sequence[float], num_trials: int | None) -> list[str]:
    if not seconds:
        return ["the time of a trial is not known"]
    low, high = min(seconds), max(seconds)
    both = format_duration(low) if low == high else f"{format_duration(low)} to {format_duration(high)}"
    lines = [f"a trial takes {both}, measured on its first batches"]
    if num_trials is not None:
        lines.append(
            f"all take {format_duration(low * num_trials)} to {format_duration(high * num_trials)}, one by one"
        )
    return lines
