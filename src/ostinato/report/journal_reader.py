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
from .state_file import STATE_NAME, find_state_path, read_state_events

KNOWN_VERSION = 1
_MAX_LINE_BYTES = 4 * 2**20  # bytes
_MAX_CURVES, _MAX_MESSAGES, _MAX_SAVES, _MAX_EPOCHS, _MAX_RUNS = 300, 200, 2_000, 1_000, 10_000
_NOT_CHARTED = frozenset(("epoch", "step"))
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MAX_STEP = 2**53
_decode = json.JSONDecoder().decode


class JournalError(DataError, OSError):
    """A journal that does not exist, or holds no run."""

    def __str__(self) -> str:  # OSError would print its own form
        return Exception.__str__(self)


@dataclass(frozen=True)
class RunMessage:
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
class RunSegment:
    """The part of a run between its start or a resume and its end; a resumed run has several."""

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
    segments: tuple[RunSegment, ...]
    curves: Mapping[str, Curve]
    evaluated: frozenset[str]  # the names of the curves that come from evaluations
    evaluated_at: tuple[int, ...]
    saves: tuple[SavedModel, ...]
    best: Mapping[str, Any]  # step, metric, value
    best_checkpoint: str | None
    coverage: tuple[Coverage, ...]
    messages: tuple[RunMessage, ...]
    num_omitted_messages: int
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
        """The time at which the run began, in seconds since 1970."""
        return next((segment.began for segment in self.segments if segment.began is not None), None)

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of all segments, by purpose."""
        spent: dict[str, float] = {}
        for segment in self.segments:
            for purpose, part in segment.seconds.items():
                spent[purpose] = spent.get(purpose, 0.0) + part
        return spent


def find_journal_path(place: str | Path) -> Path:
    """Return the journal that a file or a directory refers to; if there is none, the state file of the run.

    >>> find_journal_path("nowhere")
    Traceback (most recent call last):
    ...
    ostinato.report.journal_reader.JournalError: there is no journal in nowhere
      why: nowhere does not exist
      fix: give the output_dir of a run, or its events.jsonl
    """
    place = Path(place)
    path = place / JOURNAL_NAME if place.is_dir() else place
    if not path.is_file() and place.is_dir():
        path = find_state_path(place) or path
    if path.is_file():
        return path
    why = (
        f"it has no {JOURNAL_NAME} (the run may have had journal=False), and no checkpoint"
        if place.is_dir()
        else f"{place} does not exist"
    )
    if place.exists() and not place.is_dir():
        why = f"{place} is not a file"
    raise JournalError(
        what=f"there is no journal in {place}", why=why, fix=f"give the output_dir of a run, or its {JOURNAL_NAME}"
    )


def read_run(place: str | Path, run_id: str | None = None) -> RunRecord:
    """Read a run from a journal.

    Args:
        place: The directory of the run, or its journal; or one of transformers, with its `trainer_state.json`.
        run_id: The id of the run, if there are several; by default the one that began last.

    Returns:
        The run, with its curves, arguments and messages.

    Raises:
        JournalError: There is no journal, or no such run.

    >>> read_run("out").step  # doctest: +SKIP
    200
    """
    path = find_journal_path(place)
    runs: dict[str, _RunReader] = {}
    latest, bad, newer, overflow = "", 0, False, 0
    for event in read_events(path):
        if event is None:
            bad += 1
            continue
        name = event.get("run")
        if not isinstance(name, str) or not isinstance(event.get("event"), str):
            bad += 1
            continue
        newer = newer or _parse_finite_or_zero(event.get("v")) > KNOWN_VERSION
        if name not in runs:
            if len(runs) >= _MAX_RUNS:
                overflow += 1
                continue
            runs[name] = _RunReader()
        if event["event"] == "start":
            latest = name
            if run_id is None:  # the earlier runs are not needed any more
                runs.update({other: _RunReader() for other in runs if other != name})
        if run_id is None or name == run_id:
            runs[name].read(event)
    wanted = run_id if run_id is not None else latest or next(reversed(runs), "")
    if wanted not in runs:
        raise _build_no_run_error(path, run_id, runs, bad)
    return runs[wanted].build_record(path, wanted, others=len(runs) - 1 + overflow, bad=bad, newer=newer)


def _build_no_run_error(path: Path, run_id: str | None, runs: Mapping[str, Any], bad: int) -> JournalError:
    if run_id is not None and runs:
        known = ", ".join(list(runs)[-5:])
        return JournalError(
            what=f"{path} has no run {run_id}", why=f"its last runs are {known}", fix="use one of these"
        )
    why = f"none of its {bad} lines is an event" if bad else "it is empty"
    return JournalError(
        what=f"{path} is not a journal of a run", why=why, fix=f"give the output_dir of a run, or its {JOURNAL_NAME}"
    )


def read_events(path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the events of a journal in order; None for a line that is not an event."""
    try:
        if path.name == STATE_NAME:
            yield from read_state_events(path)
            return
        with path.open("rb") as file:
            for line in _read_lines(file):
                if line is None or line.strip():
                    yield None if line is None else _parse_event(line)
    except OSError as error:
        raise JournalError(
            what=f"{path} cannot be read", why=error.strerror or str(error), fix="check its permissions"
        ) from error


def _read_lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield lines; None for one that is longer than any line of a journal."""
    while line := file.readline(_MAX_LINE_BYTES):
        if len(line) == _MAX_LINE_BYTES and not line.endswith(b"\n"):
            while (rest := file.readline(_MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
            yield None
        else:
            yield line


def _parse_event(line: bytes) -> dict[str, Any] | None:
    try:
        event = _decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


# ---- one run, line by line --------------------------------------------------------------------------------------


@dataclass
class _OpenSegment:
    began: float | None
    from_step: int
    ended: Any = None  # as the last line has it, which may be any value
    seconds: dict[str, Any] = field(default_factory=dict)

    def build_segment(self) -> RunSegment:
        spent = {str(name)[:40]: _parse_finite_or_zero(part) for name, part in list(self.seconds.items())[:20]}
        return RunSegment(self.began, _parse_finite(self.ended), self.from_step, spent)


class _RunReader:
    """A reader that collects the events of a run, one by one."""

    def __init__(self) -> None:
        self.start: dict[str, Any] = {}
        self.segments: list[_OpenSegment] = []
        self.curves: dict[str, GrowingCurve] = {}
        self.evaluated: set[str] = set()
        self.evaluations = GrowingCurve()
        self.saves: list[SavedModel] = []
        self.bests: list[dict[str, Any]] = []
        self.best_checkpoint: str | None = None
        self.coverage: dict[int, Coverage] = {}
        self.messages: list[RunMessage] = []
        self.num_omitted_messages = 0
        self.final: dict[str, Any] = {}
        self.outcome, self.outcome_text, self.traceback = "open", "", ""
        self.step, self.epoch = 0, None
        self._before: tuple[int, float, float] | None = None  # step, seconds and tokens of the last log
        self._rows_per_step = 0.0

    def read(self, event: dict[str, Any]) -> None:
        """Read one event. Of an unknown kind only the time is used."""
        if self.segments:
            segment = self.segments[-1]
            segment.ended = event.get("time", segment.ended)
            if seconds := as_mapping(event.get("seconds")):
                segment.seconds = seconds
        handler = _HANDLERS.get(event["event"])
        if handler is not None:
            handler(self, event)

    def _read_start(self, event: dict[str, Any]) -> None:
        step = parse_step(event.get("step")) or 0
        resumed = parse_step(as_mapping(event.get("resumed_from")).get("step"))
        self._drop_after(step if resumed is None else resumed)
        self.start = event
        self.segments.append(_OpenSegment(_parse_finite(event.get("time")), step))
        self.outcome, self.outcome_text, self.traceback = "open", "", ""
        self.step, self._before = step, None
        self._rows_per_step = _parse_finite_or_zero(as_mapping(event.get("plan")).get("rows_per_step"))

    def _drop_after(self, step: int) -> None:
        """Drop what was recorded of the steps after `step`: the run repeats them."""
        for curve in self.curves.values():
            curve.drop_after(step)
        self.evaluations.drop_after(step)
        self.saves = [save for save in self.saves if save.step <= step]
        self.bests = [best for best in self.bests if best["step"] <= step]

    def _read_log(self, event: dict[str, Any]) -> None:
        step = parse_step(event.get("step"))
        if step is None:
            return
        self._advance(step, event)
        curves, final = self.curves, self.final
        for name, value in as_mapping(event.get("logs")).items():
            if type(value) is float and name in curves and name in final:  # nearly all of a long journal
                curves[name].add(step, value)
                final[name] = value
            elif (number := parse_number(value)) is not None and name not in _NOT_CHARTED:
                self._add_point(name, step, number)
                self._record_final(name, number)
        for name, value in as_mapping(event.get("memory")).items():
            if (number := parse_number(value)) is not None:
                self._add_point(f"memory/{name}", step, number)
        self._add_speed(step, event)

    def _add_speed(self, step: int, event: dict[str, Any]) -> None:
        """Add the rows and tokens per second of training since the last log; evaluating and saving do not count."""
        seconds = as_mapping(event.get("seconds"))
        if not seconds:
            return
        spent = _parse_finite_or_zero(seconds.get("computing")) + _parse_finite_or_zero(seconds.get("data"))
        tokens, before = _parse_finite_or_zero(event.get("tokens")), self._before
        if before is not None and before[0] == step:
            return
        self._before = (step, spent, tokens)
        if before is None or step < before[0] or spent - before[1] <= 0:
            return
        steps, passed = step - before[0], spent - before[1]
        if self._rows_per_step:
            self._add_point("speed/rows", step, steps * self._rows_per_step / passed)
        if tokens > before[2]:
            self._add_point("speed/tokens", step, (tokens - before[2]) / passed)

    def _read_evaluation(self, event: dict[str, Any]) -> None:
        step = parse_step(event.get("step"))
        if step is None:
            return
        for name, value in list(as_mapping(event.get("metrics")).items())[:_MAX_CURVES]:
            number = parse_number(value)
            if number is not None and name not in _NOT_CHARTED and len(self.evaluated) < _MAX_CURVES:
                self.evaluated.add(name)
                self._record_final(name, number)
        if event.get("training", True):
            self._advance(step, event)
            self.evaluations.add(step, 0.0)

    def _read_prediction(self, event: dict[str, Any]) -> None:
        for name, value in list(as_mapping(event.get("metrics")).items())[:_MAX_CURVES]:
            if (number := parse_number(value)) is not None:
                self._record_final(name, number)

    def _read_save(self, event: dict[str, Any]) -> None:
        step, path = parse_step(event.get("step")), event.get("path")
        if step is None or not isinstance(path, str):
            return
        size, seconds = int(_parse_finite_or_zero(event.get("bytes"))), _parse_finite_or_zero(event.get("seconds"))
        self.saves.append(SavedModel(step, path[:300], size, seconds, event.get("best") is True))
        del self.saves[:-_MAX_SAVES]

    def _read_best(self, event: dict[str, Any]) -> None:
        step, value = parse_step(event.get("step")), parse_number(event.get("value"))
        if step is not None and value is not None:
            self.bests.append({"step": step, "metric": str(event.get("metric"))[:200], "value": value})
            del self.bests[:-_MAX_SAVES]

    def _read_epoch(self, event: dict[str, Any]) -> None:
        self._record_coverage(event)
        if (step := parse_step(event.get("step"))) is not None:
            self._advance(step, event)

    def _record_coverage(self, event: dict[str, Any]) -> None:
        rows = as_mapping(event.get("rows"))
        epoch = parse_step(rows.get("epoch"))
        if epoch is not None and (epoch in self.coverage or len(self.coverage) < _MAX_EPOCHS):
            done, whole = parse_step(rows.get("done")), parse_step(rows.get("of"))
            batches, skipped = parse_step(rows.get("batches")) or 0, parse_step(rows.get("skipped")) or 0
            self.coverage[epoch] = Coverage(epoch, done, whole, batches, skipped)

    def _record_message(self, event: dict[str, Any]) -> None:
        if len(self.messages) >= _MAX_MESSAGES:
            self.num_omitted_messages += 1
            return
        kind, text = event["event"], str(event.get("text", ""))[:4_000]
        self.messages.append(RunMessage(kind, text, _parse_finite(event.get("time")), self.step))

    def _record_gap(self, event: dict[str, Any]) -> None:
        self._record_message(
            {
                **event,
                "text": f"{int(_parse_finite_or_zero(event.get('lines')))} lines of the journal could not be written",
            }
        )

    def _read_end(self, event: dict[str, Any]) -> None:
        self._advance_to_event(event)
        self.outcome = "finished"
        best = event.get("best_checkpoint")
        self.best_checkpoint = best[:300] if isinstance(best, str) else None

    def _read_stop(self, event: dict[str, Any]) -> None:
        self._advance_to_event(event)
        self._record_coverage(event)
        self.outcome, self.outcome_text = "stopped", str(event.get("signal", ""))[:40]

    def _read_error(self, event: dict[str, Any]) -> None:
        self._advance_to_event(event)
        self._record_coverage(event)
        self.outcome = "failed"
        kind, text = str(event.get("type", "error"))[:100], str(event.get("text", ""))[:4_000]
        self.outcome_text, self.traceback = f"{kind}: {text}", str(event.get("traceback", ""))[:16_000]
        self._record_message({**event, "text": self.outcome_text})

    def _advance_to_event(self, event: dict[str, Any]) -> None:
        if (step := parse_step(event.get("step"))) is not None:
            self._advance(step, event)

    def _advance(self, step: int, event: dict[str, Any]) -> None:
        self.step = max(step, self.step)
        epoch = _parse_finite(event.get("epoch"))
        self.epoch = epoch if epoch is not None else self.epoch

    def _add_point(self, name: str, step: int, value: float) -> None:
        if name not in self.curves:
            if len(self.curves) >= _MAX_CURVES:
                return
            self.curves[name] = GrowingCurve()
        self.curves[name].add(step, value)

    def _record_final(self, name: str, value: float) -> None:
        if name in self.final or len(self.final) < _MAX_CURVES:
            self.final[name] = value

    def build_record(self, path: Path, run_id: str, *, others: int, bad: int, newer: bool) -> RunRecord:
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
            arguments=as_mapping(start.get("arguments")),
            origins={str(name): str(one) for name, one in as_mapping(start.get("origins")).items()},
            plan=as_mapping(start.get("plan")),
            environment=as_mapping(start.get("environment")),
            command=as_mapping(start.get("command")),
            code=as_mapping(start.get("code")),
            processes=parse_step(start.get("processes")) or 1,
            forked_from=as_mapping(start.get("forked_from")),
            segments=tuple(segment.build_segment() for segment in self.segments),
            curves={name: curve.build_curve() for name, curve in self.curves.items() if curve},
            evaluated=frozenset(self.evaluated),
            evaluated_at=self.evaluations.build_curve().steps,
            saves=tuple(self.saves),
            best=self.bests[-1] if self.bests else {},
            best_checkpoint=self.best_checkpoint,
            coverage=tuple(self.coverage[epoch] for epoch in sorted(self.coverage)),
            messages=tuple(self.messages),
            num_omitted_messages=self.num_omitted_messages,
            final=self.final,
            other_runs=others,
            bad_lines=bad,
            newer=newer,
        )


_HANDLERS = {
    "start": _RunReader._read_start,
    "log": _RunReader._read_log,
    "evaluation": _RunReader._read_evaluation,
    "prediction": _RunReader._read_prediction,
    "save": _RunReader._read_save,
    "best": _RunReader._read_best,
    "epoch": _RunReader._read_epoch,
    "notice": _RunReader._record_message,
    "warning": _RunReader._record_message,
    "gap": _RunReader._record_gap,
    "end": _RunReader._read_end,
    "stopped": _RunReader._read_stop,
    "error": _RunReader._read_error,
}


# ---- untrusted values ---------------------------------------------------------------------------------------------


def as_mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a dict, else an empty dict."""
    return value if isinstance(value, dict) else {}


def parse_number(value: Any) -> float | None:
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


def _parse_finite(value: Any) -> float | None:
    number = value if type(value) is float else parse_number(value)
    return number if number is not None and math.isfinite(number) else None


def _parse_finite_or_zero(value: Any) -> float:
    return _parse_finite(value) or 0.0


def parse_step(value: Any) -> int | None:
    """Return an integer from 0 on; None for anything else."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and 0 <= value <= _MAX_STEP else None
