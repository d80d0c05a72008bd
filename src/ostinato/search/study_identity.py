"""What a study searches, as plain data, and how another search differs: a study goes on with its own search alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arguments.trial_values import list_deciding_values
from ..core.notices import note
from ..journal.writer import to_plain
from .host import SearchHost
from .search_errors import other_space
from .search_space import SearchSpace

Identity = Mapping[str, Any]


def describe_study(
    space: SearchSpace, directions: tuple[str, ...], num_trials: int | None, trainer: SearchHost
) -> Identity:
    """Return what a study searches, as plain data."""
    parameters = space.describe()
    searched = {one["name"].partition(".")[0] for one in parameters or ()}
    deciding = list_deciding_values(trainer.args)
    return {
        "space": parameters,
        "directions": list(directions),
        "num_trials": num_trials,
        "arguments": {name: to_plain(value) for name, value in deciding.items() if name not in searched},
    }


def choose_study(
    host: SearchHost, about: Identity, last: str, known: Identity, another: str, *, is_finished: bool
) -> str:
    """Return the name of the study to go on with: the last one, or another if that is finished.

    Args:
        host: The trainer; one that has searched the last study itself does not search it again.
        about: What is to be searched.
        last: The name of the last study in the output directory.
        known: What it searches.
        another: The name of a new study.
        is_finished: Whether the last study is.

    Raises:
        ConfigError: The last one is not finished, and belongs to another search.
    """
    differing = list_differences(known, about)
    if is_finished and (differing or host._searched == last):
        note(f"the search {last!r} in {host._output_path} is finished: this one is {another!r}")
        return another
    if differing:
        raise other_space(last, differing, host._output_path)
    return last


def list_differences(known: Any, about: Identity) -> list[str]:
    """Return what differs between the search that began a study and this one."""
    if not isinstance(known, Mapping):
        return []
    differing = []
    if known.get("directions") != about["directions"]:
        differing.append(f"it has the directions {known.get('directions')}, now {about['directions']}")
    before, now = known.get("space"), about["space"]
    if before is not None and now is not None:
        old, new = ({one["name"]: one for one in space} for space in (before, now))
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                what = "searched then" if name not in new else "searched now" if name not in old else "another range"
                differing.append(f"{name} ({what})")
    for name, value in about["arguments"].items():
        if name in known.get("arguments", {}) and known["arguments"][name] != value:
            differing.append(f"{name}={value!r}, then {known['arguments'][name]!r}")
    return differing
