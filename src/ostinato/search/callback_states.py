"""Callbacks as they were before a search, so that a trial does not begin with the counters of the one before it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ..core.state import ExportableState

_COUNTERS = (bool, int, float, str, type(None))
_OURS = f"{__name__.partition('.')[0]}."


class CallbackStates:
    """What callbacks count and remember.

    Restored are the numbers and texts among the attributes, and the exported state of those that have one. Lists and
    dicts are left as they are: they are how a callback collects something over all trials. Those of the library's own
    callbacks that export no state begin anew by themselves.
    """

    def __init__(self, callbacks: Sequence[Any]) -> None:
        self._exported = [(one, copy.deepcopy(one.state())) for one in callbacks if isinstance(one, ExportableState)]
        others = [one for one in callbacks if isinstance(one, ExportableState) or not _is_ours(one)]
        self._counted = [(one, _find_counters(one)) for one in others]

    def restore(self) -> None:
        """Put every callback back."""
        for callback, state in self._exported:
            for name, value in {**state["args"], **state["attributes"]}.items():
                setattr(callback, name, copy.deepcopy(value))
        for callback, counters in self._counted:
            for name in _find_counters(callback).keys() - counters.keys():
                delattr(callback, name)
            for name, value in counters.items():
                setattr(callback, name, value)


def _find_counters(callback: Any) -> dict[str, Any]:
    return {name: value for name, value in getattr(callback, "__dict__", {}).items() if isinstance(value, _COUNTERS)}


def _is_ours(callback: Any) -> bool:
    return type(callback).__module__.startswith(_OURS)
