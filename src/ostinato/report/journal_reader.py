"""Reader of journals: turns the events of one run into a record (docs/journal.md).

The content of a file is not trusted. Lines that are cut off, are not JSON or make no sense are counted and left out;
unknown kinds of events and unknown fields are ignored; and what is kept of a file is limited, whatever it holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ..core.errors import DataError
from ..core.run_files import JOURNAL_NAME
from .downsample import Curve, GrowingCurve
from .state_file import STATE_NAME, state_events, state_path

KNOWN_VERSION = 1
_LONGEST_LINE = 4 * 2**20  # bytes
_MOST_CURVES, _MOST_SAYINGS, _MOST_SAVES, _MOST_EPOCHS, _MOST_RUNS = 300, 200, 2_000, 1_000, 10_000
_NO_CURVES = frozenset(("epoch", "step"))
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LARGEST_STEP = 2**53
_decode = json.JSONDecoder().decode


class JournalError(DataError, OSError):
    """A journal that does not exist, or holds no run."""

    def __str__(self) -> str:  # OSError would print its own form
        return Exception.__str__(self)


@dataclass(frozen=True)
class Saying:
    """A message of the run: a notice, a warning or an error."""

    kind: str
    text: str
    time: float | None
    step: int | None


@dataclass(frozen=True)
class SavedModel:
    """A directory of weights that was written."""

    step: int
    path: str
    size: int
    seconds: float
    is_best: bool


@dataclass(frozen=True)
class Coverage:
    """How much of the training set an epoch has seen."""

    epoch: int
    done: int | None
    of: int | None
    batches: int
    skipped: int


@dataclass(frozen=True)
class Leg:
    """The part of a run that one process did; a resumed run has several."""

    began: float | None
    ended: float | None
    from_step: int
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class RunRecord:
    """A run as recorded in its journal."""

    path: Path
    run_id: str
    name: str
    outcome: str  # finished, stopped, failed, or open: the journal does not record an end
    outcome_text: str
    traceback: str
    step: int
    epoch: float | None
    arguments: Mapping[str, Any]
    origins: Mapping[str, str]
    plan: Mapping[str, Any]
    environment: Mapping[str, Any]
    command: Mapping[str, Any]
    code: Mapping[str, Any]
    processes: int
    forked_from: Mapping[str, Any]
    legs: tuple[Leg, ...]
    curves: Mapping[str, Curve]
    evaluated: frozenset[str]  # the names of the curves that come from evaluations
    evaluated_at: tuple[int, ...]
    saves: tuple[SavedModel, ...]
    best: Mapping[str, Any]  # step, metric, value
    best_checkpoint: str | None
    coverage: tuple[Coverage, ...]
    sayings: tuple[Saying, ...]
    more_sayings: int
    final: Mapping[str, Any]  # the last numbers of training, evaluation and prediction, by name
    other_runs: int  # number of other runs in the same file
    bad_lines: int
    newer: bool  # written by a later version, which may record more

    @property
    def has_journal(self) -> bool:
        """Whether saves, messages and times are recorded."""
        return self.path.name != STATE_NAME

    @property
    def began(self) -> float | None:
        return next((leg.began for leg in self.legs if leg.began is not None), None)

    @property
    def seconds(self) -> dict[str, float]:
        """The time of all legs, by purpose."""
        spent: dict[str, float] = {}
        for leg in self.legs:
            for purpose, part in leg.seconds.items():
                spent[purpose] = spent.get(purpose, 0.0) + part
        return spent


def journal_path(place: str | Path) -> Path:
    """Return the journal that a file or a directory refers to; if there is none, the state file of the run.

    >>> journal_path("nowhere")
    Traceback (most recent call last):
    ...
    ostinato.report.journal_reader.JournalError: there is no journal in nowhere
      why: nowhere does not exist
      fix: name the output_dir of a run, or its events.jsonl
    """
    place = Path(place)
    path = place / JOURNAL_NAME if place.is_dir() else place
    if not path.is_file() and place.is_dir():
        path = state_path(place) or path
    if path.is_file():
        return path
    why = (
        f"it has no {JOURNAL_NAME} (the run may have had journal=False), and no checkpoint"
        if place.is_dir()
        else f"{place} does not exist"
    )
    if place.exists() and not place.is_dir():
        why = f"{place} is no file"
    raise JournalError(
        what=f"there is no journal in {place}", why=why, fix=f"name the output_dir of a run, or its {JOURNAL_NAME}"
    )


def read_run(place: str | Path, run_id: str | None = None) -> RunRecord:
    """Return a run of a journal: the one with this id, or the last that began.

    >>> read_run("out").step  # doctest: +SKIP
    200
    """
    path = journal_path(place)
    runs: dict[str, _Reading] = {}
    latest, bad, newer, overflow = "", 0, False, 0
    for event in events(path):
        if event is None:
            bad += 1
            continue
        name = event.get("run")
        if not isinstance(name, str) or not isinstance(event.get("event"), str):
            bad += 1
            continue
        newer = newer or _number(event.get("v")) > KNOWN_VERSION
        if name not in runs:
            if len(runs) >= _MOST_RUNS:
                overflow += 1
                continue
            runs[name] = _Reading()
        if event["event"] == "start":
            latest = name
            if run_id is None:  # the earlier runs are not needed any more
                runs.update({other: _Reading() for other in runs if other != name})
        if run_id is None or name == run_id:
            runs[name].take(event)
    wanted = run_id if run_id is not None else latest or next(reversed(runs), "")
    if wanted not in runs:
        raise _nothing_to_tell(path, run_id, runs, bad)
    return runs[wanted].done(path, wanted, others=len(runs) - 1 + overflow, bad=bad, newer=newer)


def _nothing_to_tell(path: Path, run_id: str | None, runs: Mapping[str, Any], bad: int) -> JournalError:
    if run_id is not None and runs:
        known = ", ".join(list(runs)[-5:])
        return JournalError(
            what=f"{path} tells nothing of a run {run_id}", why=f"it tells of {known}", fix="name one of these"
        )
    why = f"none of its {bad} lines is an event" if bad else "it is empty"
    return JournalError(
        what=f"{path} is no journal of a run", why=why, fix=f"name the output_dir of a run, or its {JOURNAL_NAME}"
    )


def events(path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the events of a journal in order; None for a line that is not an event."""
    try:
        if path.name == STATE_NAME:
            yield from state_events(path)
            return
        with path.open("rb") as file:
            for line in _lines(file):
                if line is None or line.strip():
                    yield None if line is None else _event(line)
    except OSError as error:
        raise JournalError(
            what=f"{path} cannot be read", why=error.strerror or str(error), fix="see to its permissions"
        ) from error


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield lines; None for one that is longer than any line of a journal."""
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
            while (rest := file.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            yield None
        else:
            yield line


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = _decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


# ---- one run, line by line --------------------------------------------------------------------------------------


@dataclass
class _Leg:
    began: float | None
    from_step: int
    ended: Any = None  # as the last line has it, which may be any value
    seconds: dict[str, Any] = field(default_factory=dict)

    def done(self) -> Leg:
        spent = {str(name)[:40]: _number(part) for name, part in list(self.seconds.items())[:20]}
        return Leg(self.began, _finite(self.ended), self.from_step, spent)


class _Reading:
    """A reader that collects the events of a run, one by one."""

    def __init__(self) -> None:
        self.start: dict[str, Any] = {}
        self.legs: list[_Leg] = []
        self.curves: dict[str, GrowingCurve] = {}
        self.evaluated: set[str] = set()
        self.evaluations = GrowingCurve()
        self.saves: list[SavedModel] = []
        self.bests: list[dict[str, Any]] = []
        self.best_checkpoint: str | None = None
        self.coverage: dict[int, Coverage] = {}
        self.sayings: list[Saying] = []
        self.more_sayings = 0
        self.final: dict[str, Any] = {}
        self.outcome, self.outcome_text, self.traceback = "open", "", ""
        self.step, self.epoch = 0, None
        self._before: tuple[int, float, float] | None = None  # step, seconds and tokens of the last log
        self._rows_per_step = 0.0

    def take(self, event: dict[str, Any]) -> None:
        """Read one event. Of an unknown kind only the time is used."""
        if self.legs:
            leg = self.legs[-1]
            leg.ended = event.get("time", leg.ended)
            if seconds := mapping_in(event.get("seconds")):
                leg.seconds = seconds
        taken = _TAKES.get(event["event"])
        if taken is not None:
            taken(self, event)

    def _start(self, event: dict[str, Any]) -> None:
        step = step_in(event.get("step")) or 0
        resumed = step_in(mapping_in(event.get("resumed_from")).get("step"))
        self._go_back_to(step if resumed is None else resumed)
        self.start = event
        self.legs.append(_Leg(_finite(event.get("time")), step))
        self.outcome, self.outcome_text, self.traceback = "open", "", ""
        self.step, self._before = step, None
        self._rows_per_step = _number(mapping_in(event.get("plan")).get("rows_per_step"))

    def _go_back_to(self, step: int) -> None:
        """Drop what was recorded of the steps after `step`: the run repeats them."""
        for curve in self.curves.values():
            curve.forget_after(step)
        self.evaluations.forget_after(step)
        self.saves = [save for save in self.saves if save.step <= step]
        self.bests = [best for best in self.bests if best["step"] <= step]

    def _log(self, event: dict[str, Any]) -> None:
        step = step_in(event.get("step"))
        if step is None:
            return
        self._at(step, event)
        curves, final = self.curves, self.final
        for name, value in mapping_in(event.get("logs")).items():
            if type(value) is float and name in curves and name in final:  # nearly all of a long journal
                curves[name].add(step, value)
                final[name] = value
            elif (number := value_in(value)) is not None and name not in _NO_CURVES:
                self._add(name, step, number)
                self._remember(name, number)
        for name, value in mapping_in(event.get("memory")).items():
            if (number := value_in(value)) is not None:
                self._add(f"memory/{name}", step, number)
        self._add_speed(step, event)

    def _add_speed(self, step: int, event: dict[str, Any]) -> None:
        """Add the rows and tokens per second of training since the last log; evaluating and saving do not count."""
        seconds = mapping_in(event.get("seconds"))
        if not seconds:
            return
        spent = _number(seconds.get("computing")) + _number(seconds.get("data"))
        tokens, before = _number(event.get("tokens")), self._before
        if before is not None and before[0] == step:
            return
        self._before = (step, spent, tokens)
        if before is None or step < before[0] or spent - before[1] <= 0:
            return
        steps, passed = step - before[0], spent - before[1]
        if self._rows_per_step:
            self._add("speed/rows", step, steps * self._rows_per_step / passed)
        if tokens > before[2]:
            self._add("speed/tokens", step, (tokens - before[2]) / passed)

    def _evaluation(self, event: dict[str, Any]) -> None:
        step = step_in(event.get("step"))
        if step is None:
            return
        for name, value in list(mapping_in(event.get("metrics")).items())[:_MOST_CURVES]:
            number = value_in(value)
            if number is not None and name not in _NO_CURVES and len(self.evaluated) < _MOST_CURVES:
                self.evaluated.add(name)
                self._remember(name, number)
        if event.get("training", True):
            self._at(step, event)
            self.evaluations.add(step, 0.0)

    def _prediction(self, event: dict[str, Any]) -> None:
        for name, value in list(mapping_in(event.get("metrics")).items())[:_MOST_CURVES]:
            if (number := value_in(value)) is not None:
                self._remember(name, number)

    def _save(self, event: dict[str, Any]) -> None:
        step, path = step_in(event.get("step")), event.get("path")
        if step is None or not isinstance(path, str):
            return
        size, seconds = int(_number(event.get("bytes"))), _number(event.get("seconds"))
        self.saves.append(SavedModel(step, path[:300], size, seconds, event.get("best") is True))
        del self.saves[:-_MOST_SAVES]

    def _found_best(self, event: dict[str, Any]) -> None:
        step, value = step_in(event.get("step")), value_in(event.get("value"))
        if step is not None and value is not None:
            self.bests.append({"step": step, "metric": str(event.get("metric"))[:200], "value": value})
            del self.bests[:-_MOST_SAVES]

    def _epoch(self, event: dict[str, Any]) -> None:
        self._cover(event)
        if (step := step_in(event.get("step"))) is not None:
            self._at(step, event)

    def _cover(self, event: dict[str, Any]) -> None:
        rows = mapping_in(event.get("rows"))
        epoch = step_in(rows.get("epoch"))
        if epoch is not None and (epoch in self.coverage or len(self.coverage) < _MOST_EPOCHS):
            done, whole = step_in(rows.get("done")), step_in(rows.get("of"))
            batches, skipped = step_in(rows.get("batches")) or 0, step_in(rows.get("skipped")) or 0
            self.coverage[epoch] = Coverage(epoch, done, whole, batches, skipped)

    def _say(self, event: dict[str, Any]) -> None:
        if len(self.sayings) >= _MOST_SAYINGS:
            self.more_sayings += 1
            return
        kind, text = event["event"], str(event.get("text", ""))[:4_000]
        self.sayings.append(Saying(kind, text, _finite(event.get("time")), self.step))

    def _gap(self, event: dict[str, Any]) -> None:
        self._say({**event, "text": f"{int(_number(event.get('lines')))} lines of the journal could not be written"})

    def _end(self, event: dict[str, Any]) -> None:
        self._reach(event)
        self.outcome = "finished"
        best = event.get("best_checkpoint")
        self.best_checkpoint = best[:300] if isinstance(best, str) else None

    def _stopped(self, event: dict[str, Any]) -> None:
        self._reach(event)
        self._cover(event)
        self.outcome, self.outcome_text = "stopped", str(event.get("signal", ""))[:40]

    def _failed(self, event: dict[str, Any]) -> None:
        self._reach(event)
        self._cover(event)
        self.outcome = "failed"
        kind, text = str(event.get("type", "error"))[:100], str(event.get("text", ""))[:4_000]
        self.outcome_text, self.traceback = f"{kind}: {text}", str(event.get("traceback", ""))[:16_000]
        self._say({**event, "text": self.outcome_text})

    def _reach(self, event: dict[str, Any]) -> None:
        if (step := step_in(event.get("step"))) is not None:
            self._at(step, event)

    def _at(self, step: int, event: dict[str, Any]) -> None:
        self.step = max(step, self.step)
        epoch = _finite(event.get("epoch"))
        self.epoch = epoch if epoch is not None else self.epoch

    def _add(self, name: str, step: int, value: float) -> None:
        if name not in self.curves:
            if len(self.curves) >= _MOST_CURVES:
                return
            self.curves[name] = GrowingCurve()
        self.curves[name].add(step, value)

    def _remember(self, name: str, value: float) -> None:
        if name in self.final or len(self.final) < _MOST_CURVES:
            self.final[name] = value

    def done(self, path: Path, run_id: str, *, others: int, bad: int, newer: bool) -> RunRecord:
        """Return the record of the events that were read."""
        start = self.start
        return RunRecord(
            path=path,
            run_id=run_id,
            name=str(start.get("name") or path.resolve().parent.name or run_id)[:200],
            outcome=self.outcome,
            outcome_text=self.outcome_text,
            traceback=self.traceback,
            step=self.step,
            epoch=self.epoch,
            arguments=mapping_in(start.get("arguments")),
            origins={str(name): str(one) for name, one in mapping_in(start.get("origins")).items()},
            plan=mapping_in(start.get("plan")),
            environment=mapping_in(start.get("environment")),
            command=mapping_in(start.get("command")),
            code=mapping_in(start.get("code")),
            processes=step_in(start.get("processes")) or 1,
            forked_from=mapping_in(start.get("forked_from")),
            legs=tuple(leg.done() for leg in self.legs),
            curves={name: curve.done() for name, curve in self.curves.items() if curve},
            evaluated=frozenset(self.evaluated),
            evaluated_at=self.evaluations.done().steps,
            saves=tuple(self.saves),
            best=self.bests[-1] if self.bests else {},
            best_checkpoint=self.best_checkpoint,
            coverage=tuple(self.coverage[epoch] for epoch in sorted(self.coverage)),
            sayings=tuple(self.sayings),
            more_sayings=self.more_sayings,
            final=self.final,
            other_runs=others,
            bad_lines=bad,
            newer=newer,
        )


_TAKES = {
    "start": _Reading._start,
    "log": _Reading._log,
    "evaluation": _Reading._evaluation,
    "prediction": _Reading._prediction,
    "save": _Reading._save,
    "best": _Reading._found_best,
    "epoch": _Reading._epoch,
    "notice": _Reading._say,
    "warning": _Reading._say,
    "gap": _Reading._gap,
    "end": _Reading._end,
    "stopped": _Reading._stopped,
    "error": _Reading._failed,
}


# ---- untrusted values ---------------------------------------------------------------------------------------------


def mapping_in(value: Any) -> dict[str, Any]:
    """Return the value if it is a dict, else an empty dict."""
    return value if isinstance(value, dict) else {}


def value_in(value: Any) -> float | None:
    """Return a number of the journal, which may be not finite; None for anything else."""
    if type(value) is float:  # nearly all are
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _NOT_FINITE.get(value)
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return None


def _finite(value: Any) -> float | None:
    number = value if type(value) is float else value_in(value)
    return number if number is not None and math.isfinite(number) else None


def _number(value: Any) -> float:
    return _finite(value) or 0.0


def step_in(value: Any) -> int | None:
    """Return an integer from 0 on; None for anything else."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and 0 <= value <= _LARGEST_STEP else None
