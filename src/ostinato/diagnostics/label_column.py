"""Which column is meant to hold the labels."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# What labels are called where they are not called what the model calls them.
USUAL_NAMES = (
    "labels",
    "label",
    "label_ids",
    "target",
    "targets",
    "y",
    "y_true",
    "class",
    "classes",
    "category",
    "gold",
)


def likely_labels(names: Iterable[str], wanted: Iterable[str]) -> str | None:
    """The column that looks like labels, if any: a usual name, or nearly the wanted one.

    >>> likely_labels(["x", "target"], ["labels"]), likely_labels(["x", "lables"], ["labels"])
    ('target', 'lables')
    >>> likely_labels(["x", "text"], ["labels"])
    """
    names, wanted = list(names), [*wanted]
    for usual in USUAL_NAMES:
        for name in names:
            if name.lower() == usual and name not in wanted:
                return name
    for name in names:
        if name not in wanted and difflib.get_close_matches(name.lower(), wanted, n=1, cutoff=0.8):
            return name
    return None
