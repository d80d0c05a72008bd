"""The environment variables that configure trackers, each declared by the callback of its tracker."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..core.notices import note_once

_YES = ("1", "true", "yes", "on", "y", "t")


def is_set(name: str) -> bool:
    """Return whether a variable says yes.

    >>> os.environ["EXAMPLE_OF_A_VARIABLE"] = "True"
    >>> is_set("EXAMPLE_OF_A_VARIABLE"), is_set("ANOTHER_VARIABLE")
    (True, False)
    """
    return os.environ.get(name, "").lower() in _YES


def note_ineffective(variables: Mapping[str, str]) -> None:
    """Report once, for each of these variables that is set, that it has no effect, and what to do instead."""
    for name, advice in variables.items():
        if os.environ.get(name, "").lower() not in ("", "0", "false", "no", "off", "none"):
            note_once(f"{name} has no effect: {advice}")


def choose_run_id(variable: str, saved: str | None) -> str | None:
    """Return the id of the tracker's run to continue: that of the variable, or else of the checkpoint."""
    given = os.environ.get(variable)
    if given and saved is not None and given != saved:
        note_once(f"{variable} is set: the run {given} continues, and not {saved}, which the checkpoint names")
    return given or saved
