"""How much each parameter of a search matters, by itself, for the order of its trials.

Trials are ranked by their objective, so that a few bad ones do not decide. Values are put into groups: choices as they
are, numbers into up to four groups of equal size. The effect is the share of the variance of the ranks that lies
between the groups, less what groups of random trials would have (omega squared). What parameters do together is not
seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..journal.study_record import COMPLETE, StudyRecord

_MIN_TRIALS = 4
_MAX_GROUPS = 4


def compute_effects(study: StudyRecord, objective: int = 0) -> dict[str, float]:
    """Return the effect of every parameter from 0 to 1, largest first; empty for too few trials."""
    done = [one for one in study.trials if one.state == COMPLETE and one.values is not None]
    names = list(dict.fromkeys(name for one in done for name in one.params))
    effects = {}
    for name in names:
        having = [one for one in done if name in one.params]
        if len(having) >= _MIN_TRIALS:
            values = [(one.values or ())[objective] for one in having]
            effects[name] = compute_effect([one.params[name] for one in having], values)
    return dict(sorted(effects.items(), key=lambda pair: -pair[1]))


def compute_effect(settings: Sequence[Any], values: Sequence[float]) -> float:
    """Return the effect of one parameter.

    >>> round(compute_effect(["a", "a", "a", "b", "b", "b"], [1, 2, 3, 7, 8, 9]), 2)
    0.68
    >>> compute_effect(["a", "b", "a", "b"], [1, 2, 4, 3])
    0.0
    """
    ranks, groups = _rank(values), _group(settings)
    count, kinds = len(ranks), sorted(set(groups))
    between = sum(_spread(ranks, groups, kind) for kind in kinds)
    total = float(((ranks - ranks.mean()) ** 2).sum())
    if total == 0 or len(kinds) < 2 or count <= len(kinds):
        return 0.0
    within = (total - between) / (count - len(kinds))
    return max(0.0, (between - (len(kinds) - 1) * within) / (total + within))


def _spread(ranks: Any, groups: Sequence[int], kind: int) -> float:
    own = ranks[[group == kind for group in groups]]
    return float(len(own) * (own.mean() - ranks.mean()) ** 2)


def _rank(values: Sequence[float]) -> Any:
    """Return the rank of every value; equal values share the mean of theirs."""
    array = np.asarray(values, dtype=float)
    return np.array([(array < value).sum() + ((array == value).sum() - 1) / 2 for value in array])


def _group(settings: Sequence[Any]) -> list[int]:
    """Return the group of every value."""
    is_numeric = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in settings)
    distinct = sorted(set(settings)) if is_numeric else sorted(set(map(str, settings)))
    if not is_numeric or len(distinct) <= _MAX_GROUPS:
        place = {one: index for index, one in enumerate(distinct)}
        return [place[one if is_numeric else str(one)] for one in settings]
    edges = np.quantile(np.asarray(settings, dtype=float), np.linspace(0, 1, _MAX_GROUPS + 1)[1:-1])
    return [int(np.searchsorted(edges, one, side="right")) for one in settings]
