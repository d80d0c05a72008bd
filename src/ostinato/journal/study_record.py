"""The record of a search on disk: `search/study.jsonl` in the output directory, one line of JSON per event.

The trials of a search append to it, in whatever process they run; the report, `load_best_trial` and continuing read
it. It does not depend on the search library. Every line has

    v        the version of the format, 1
    time     seconds since 1970
    event    study, trial, value or end
    study    the name of the study: a directory may hold several, one after another

and by event

    study    the search begins or goes on
             backend      "optuna", "ray" or "wandb"
             engine       what proposes the values, such as "TPESampler"
             directions   ["minimize"], one per objective
             objectives   ["eval_loss"], their names
             num_trials   the number of trials in all; null: until a time limit
             space        a list of parameters, or null where a function draws others in other trials:
                          {"name", "kind", "low", "high", "step", "log", "choices"}; kind is "float", "int", "choice"
                          or "other", what only the library can draw from
             arguments    the other values that a result depends on; a search that goes on has the same
    trial    a trial begins, or is begun again
             number       counted from 0
             id           the identifier of the library (that of `BestRun.run_id`)
             name         the name of the run
             directory    that of the run: its journal, its checkpoints; relative to the output directory
             params       name to value
             arguments    the values of the arguments, if a function of the user gives them other names or values
             resumed      from a checkpoint, after the process that trained it had ended
             steps        how many are planned
    value    an evaluation during a trial
             number, step, epoch
             values       one per objective
    end      a trial has ended
             number, params
             state        "complete", "pruned" or "failed"
             values       one per objective; null if it failed
             step, steps  the last step, and how many were planned
             seconds      of this process
             metrics      of the last evaluation
             reason       null, or {"type", "text", "where"}: the error of a failed trial, and the line that raised it
             weights      null, or the directory of the model, relative to the output directory: it is among the best

A number that is not finite is a text: "NaN", "Infinity" or "-Infinity". A line that is not whole is left out, as are
fields and events that a later version adds. A trial without an end is running, or was killed; if it begins again, the
later lines count.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import DataError
from .writer import JournalFile

VERSION = 1
DIRECTORY = "search"  # in the output directory
NAME = "study.jsonl"
RUNNING, COMPLETE, PRUNED, FAILED = "running", "complete", "pruned", "failed"
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class NoStudyError(DataError, OSError):
    """A directory without a search."""

    def __str__(self) -> str:  # OSError would print its own form
        return Exception.__str__(self)


@dataclass(frozen=True)
class ObjectiveValue:
    """An evaluation during a trial."""

    step: int
    epoch: float | None
    values: tuple[float, ...]


@dataclass
class TrialRecord:
    """A trial as it is recorded."""

    number: int
    id: str
    name: str
    directory: str
    params: dict[str, Any]
    began: float
    state: str = RUNNING
    values: tuple[float, ...] | None = None
    step: int = 0
    steps: int | None = None
    seconds: float | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    reason: dict[str, str] | None = None
    weights: str | None = None
    given: dict[str, Any] | None = None
    curve: list[ObjectiveValue] = field(default_factory=list)
    times_begun: int = 1

    @property
    def is_finished(self) -> bool:
        return self.state != RUNNING

    @property
    def arguments(self) -> dict[str, Any]:
        """The values of the arguments by name; those of the parameters, unless they were translated."""
        return self.params if self.given is None else self.given


@dataclass
class StudyRecord:
    """A search as it is recorded."""

    path: Path
    name: str
    backend: str
    engine: str
    directions: tuple[str, ...]
    objectives: tuple[str, ...]
    num_trials: int | None
    space: list[dict[str, Any]] | None
    arguments: dict[str, Any]
    began: float
    trials: list[TrialRecord] = field(default_factory=list)
    other_studies: tuple[str, ...] = ()

    @property
    def output_dir(self) -> Path:
        """The directory that paths in the record are relative to."""
        return self.path.parent.parent

    def find_best(self) -> list[TrialRecord]:
        """Return the best complete trial; for several objectives, all that no other one surpasses."""
        finished = [one for one in self.trials if one.state == COMPLETE and one.values is not None]
        comparable = [(self._turn(one.values or ()), one) for one in finished if not _has_nan(one.values or ())]
        if len(self.directions) == 1:
            best = min(comparable, key=lambda pair: pair[0], default=None)
            return [] if best is None else [best[1]]
        return [one for turned, one in comparable if not any(_dominates(other, turned) for other, _ in comparable)]

    def _turn(self, values: Sequence[float]) -> tuple[float, ...]:
        """Return values of which less is better."""
        turned = zip(values, self.directions, strict=True)
        return tuple(-value if direction == "maximize" else value for value, direction in turned)


def _has_nan(values: Sequence[float]) -> bool:
    return any(math.isnan(value) for value in values)


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(left <= right for left, right in pairs) and any(left < right for left, right in pairs)


def describe_reason(reason: Mapping[str, str]) -> str:
    """Return why a trial failed, with the line that raised it if that is known.

    >>> describe_reason({"type": "RuntimeError", "text": "no step works", "where": "train.py:12 in forward"})
    'RuntimeError: no step works (train.py:12 in forward)'
    """
    where = reason.get("where")
    return f"{reason.get('type', '')}: {reason.get('text', '')}" + (f" ({where})" if where else "")


class StudyWriter:
    """Appends the events of a search to its record."""

    def __init__(self, output_dir: str | Path, study: str) -> None:
        self.study = study
        self._file = JournalFile(Path(output_dir) / DIRECTORY / NAME)

    def write(self, event: str, **fields: Any) -> None:
        """Write one line."""
        head = {"v": VERSION, "time": round(time.time(), 3), "event": event, "study": self.study}
        self._file.append({**head, **fields})

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        self._file.close()


def find_study_path(place: str | Path) -> Path | None:
    """Return the record that an output directory, its `search` or the file itself refers to; None if there is none."""
    place = Path(place)
    candidates = [place / DIRECTORY / NAME, place / NAME, place]
    return next((one for one in candidates if one.name == NAME and one.is_file()), None)


def read_study(place: str | Path, name: str | None = None) -> StudyRecord:
    """Return the record of a search: the last one of a directory, or the one of this name.

    Raises:
        NoStudyError: There is none.
    """
    path = find_study_path(place)
    if path is None:
        raise NoStudyError(
            what=f"there is no search in {place}",
            why=f"it has no {DIRECTORY}/{NAME}",
            fix="give the output_dir of a search: trainer.hyperparameter_search() writes it there",
        )
    studies: dict[str, StudyRecord] = {}
    for entry in _read_lines(path):
        _add_event(studies, path, entry)
    if not studies or (name is not None and name not in studies):
        raise NoStudyError(
            what=f"{path} holds no search" + (f" named {name!r}" if name is not None else ""),
            why=f"it holds {', '.join(map(repr, studies))}" if studies else "no search has begun there",
            fix="name one of them" if studies else "wait until the search has begun",
        )
    chosen = studies[name] if name is not None else max(studies.values(), key=lambda study: study.began)
    chosen.other_studies = tuple(other for other in studies if other != chosen.name)
    chosen.trials.sort(key=lambda trial: trial.number)
    return chosen


def _read_lines(path: Path) -> list[dict[str, Any]]:
    entries = []
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:  # a process was killed while it wrote
            continue
        if isinstance(entry, dict) and isinstance(entry.get("study"), str):
            entries.append(entry)
    return entries


def _add_event(studies: dict[str, StudyRecord], path: Path, entry: Mapping[str, Any]) -> None:
    """Add one line to the studies; a line of another form is left out."""
    try:
        if entry["event"] == "study":
            _add_study(studies, path, entry)
        elif entry["study"] in studies:
            _ADD[entry["event"]](studies[entry["study"]], entry)
    except (KeyError, TypeError, ValueError):
        return


def _add_study(studies: dict[str, StudyRecord], path: Path, entry: Mapping[str, Any]) -> None:
    before = studies.get(entry["study"])
    studies[entry["study"]] = StudyRecord(
        path=path,
        name=entry["study"],
        backend=str(entry["backend"]),
        engine=str(entry.get("engine") or ""),
        directions=tuple(map(str, entry["directions"])),
        objectives=tuple(map(str, entry.get("objectives") or ())),
        num_trials=entry.get("num_trials"),
        space=entry.get("space"),
        arguments=dict(entry.get("arguments") or {}),
        began=float(entry["time"]) if before is None else before.began,
        trials=[] if before is None else before.trials,
    )


def _find(study: StudyRecord, entry: Mapping[str, Any]) -> TrialRecord | None:
    return next((trial for trial in study.trials if trial.number == entry["number"]), None)


def _add_trial(study: StudyRecord, entry: Mapping[str, Any]) -> None:
    before = _find(study, entry)
    trial = TrialRecord(
        number=int(entry["number"]),
        id=str(entry.get("id", entry["number"])),
        name=str(entry.get("name") or ""),
        directory=str(entry.get("directory") or ""),
        params=dict(entry.get("params") or {}),
        began=float(entry["time"]),
        steps=entry.get("steps"),
        given=entry.get("arguments"),
    )
    if before is not None:
        study.trials.remove(before)
        trial.times_begun = before.times_begun + 1
        trial.curve = before.curve
    study.trials.append(trial)


def _add_value(study: StudyRecord, entry: Mapping[str, Any]) -> None:
    trial = _find(study, entry)
    if trial is not None:
        value = ObjectiveValue(int(entry["step"]), entry.get("epoch"), _read_values(entry["values"]))
        trial.curve = [one for one in trial.curve if one.step < value.step]  # begun again: later lines count
        trial.curve.append(value)


def _add_end(study: StudyRecord, entry: Mapping[str, Any]) -> None:
    trial = _find(study, entry)
    if trial is None or entry["state"] not in (COMPLETE, PRUNED, FAILED):
        return
    trial.state = entry["state"]
    trial.params = dict(entry.get("params") or trial.params)
    trial.values = _read_values(entry["values"]) if entry.get("values") is not None else None
    trial.step, trial.steps = int(entry.get("step") or 0), entry.get("steps")
    trial.seconds, trial.metrics = entry.get("seconds"), dict(entry.get("metrics") or {})
    trial.reason, trial.weights = entry.get("reason"), entry.get("weights")


_ADD = {"trial": _add_trial, "value": _add_value, "end": _add_end}


def _read_values(values: Sequence[Any]) -> tuple[float, ...]:
    return tuple(_NOT_FINITE[value] if isinstance(value, str) else float(value) for value in values)
