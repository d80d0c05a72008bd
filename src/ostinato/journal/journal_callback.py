"""Write one line of JSON for every event of a run to `events.jsonl` (docs/journal.md).

The journal is a callback and cannot influence the run. What only the trainer knows it reads from a `RunView`, which it
holds while the run is open.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from signal import Signals
from typing import Any, Protocol

from ..arguments.secrets import remove_keys
from ..callbacks.events import QuietCallback
from ..core.errors import OstinatoError
from ..core.notices import warn
from ..core.run_files import JOURNAL_NAME
from ..core.state import TrainerControl, TrainerState
from .writer import JournalFile, format_json, format_numbers_json

VERSION = 1
_MAX_PENDING = 100  # notices before the run begins
_MAX_TEXT = 4_000  # characters of a notice or an error
_MAX_TRACEBACK = 16_000
_SIGNAL_OFFSET = 128


class RunView(Protocol):
    """What a journal reads from its run."""

    run_id: str
    directory: Path

    def describe_start(self) -> dict[str, Any]:
        """Return all that is known before the first step: arguments, environment, command, plan."""
        ...

    def read_seconds(self) -> dict[str, float]:
        """Return the seconds spent so far, by purpose."""
        ...

    def read_memory(self) -> dict[str, int]:
        """Return the bytes in use."""
        ...

    def read_coverage(self) -> dict[str, Any]:
        """Return how many rows of the current epoch are done."""
        ...


class JournalCallback(QuietCallback):
    """Appends what happens to `events.jsonl`. The trainer adds one on the main process; `journal=False` leaves it out.

    Nothing is written before training begins, so a run that cannot start leaves no journal. A line that cannot
    be written is reported once, and training continues.

    >>> [json.loads(line)["event"] for line in open("out/events.jsonl")][:1]  # doctest: +SKIP
    ['start']
    """

    def __init__(self) -> None:
        self._file: JournalFile | None = None
        self._view: RunView | None = None
        self._run_id, self._head = "", ""  # what every line begins with, up to its time
        self._has_begun = False
        self._pending: list[dict[str, Any]] = []  # notices from before the run began
        self._best: Any = None
        self._evaluated_at = 0
        self._memory: dict[str, int] = {}
        self._memory_json = "{}"

    @property
    def path(self) -> Path | None:
        """The file of the last run; None if there was none."""
        return self._file.path if self._file is not None else None

    @property
    def has_begun(self) -> bool:
        """Whether anything was written of the last run."""
        return self._has_begun

    # ---- the run, as the trainer opens and closes it --------------------------------------------------------------

    def open(self, view: RunView) -> None:
        """Prepare for a run; nothing is written yet.

        Args:
            view: What the journal reads of the run.
        """
        self._view, self._has_begun, self._pending, self._run_id = view, False, [], view.run_id
        self._head = f'{{"v":{VERSION},"run":{format_json(view.run_id)},"time":'

    def record_notice(self, kind: str, text: str) -> None:
        """Record a notice or warning.

        Args:
            kind: The name of the event.
            text: The text; keys and tokens in it are removed.
        """
        entry = {"event": kind, "text": remove_keys(text)[:_MAX_TEXT]}
        if self._has_begun:
            self._write(entry)
        elif self._view is not None and len(self._pending) < _MAX_PENDING:
            self._pending.append({**entry, "time": round(time.time(), 3)})

    def record_save(self, path: str, step: int, size: int, seconds: float, *, is_best: bool) -> None:
        """Record that a checkpoint or model is complete on the disk.

        Args:
            path: Where it was saved.
            step: The step.
            size: The number of bytes.
            seconds: How long it took.
            is_best: Whether it is the best one so far.
        """
        if self._has_begun:
            entry = {"event": "save", "step": step, "path": path, "bytes": size, "seconds": round(seconds, 4)}
            self._write({**entry, "best": is_best})

    def record_failure(self, error: BaseException, step: int) -> None:
        """Record that training failed or was stopped.

        Args:
            error: The exception that ended training.
            step: The step at which it was raised.
        """
        if not self._has_begun or self._view is None:
            return
        entry = {"step": step, "seconds": _round(self._view.read_seconds()), "rows": self._view.read_coverage()}
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self._write({"event": "stopped", **entry, "signal": _find_signal(error)})
            return
        self._write({"event": "error", **entry, **_describe_error(error)})

    def close(self) -> None:
        """End the run. Later events (an evaluation of the trained model) are still recorded."""
        self._view, self._pending = None, []
        if self._file is not None:
            self._file.close()

    # ---- events ---------------------------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        view = self._view
        if view is None:
            return
        if self._file is not None:
            self._file.close()
        self._file = JournalFile(view.directory / JOURNAL_NAME)
        self._has_begun, self._best, self._evaluated_at = True, state.best_metric, state.global_step
        self._write({"event": "start", "step": state.global_step, **_describe_start(view)})
        held, self._pending = self._pending, []
        for entry in held:
            self._write(entry)

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        if not self._has_begun or logs is None:
            return
        self._note_best(args, state)
        # Many runs log every step: this one line is put together from its parts, without a dict of all of them.
        at = f'"step":{format_json(state.global_step)},"epoch":{format_json(state.epoch)}'
        if state.num_input_tokens_seen:
            at += f',"tokens":{format_json(state.num_input_tokens_seen)}'
        line = f'{self._head}{time.time():.3f},"event":"log",{at},"logs":{format_numbers_json(logs)}'
        if self._view is not None:
            spent = ",".join([f'"{purpose}":{part:.4f}' for purpose, part in self._view.read_seconds().items()])
            line += f',"seconds":{{{spent}}},"memory":{self._format_memory(self._view.read_memory())}'
        self._append(line + "}")

    def on_evaluate(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: Any
    ) -> None:
        if self._has_begun:
            self._evaluated_at = state.global_step
            entry = {"event": "evaluation", "step": state.global_step, "epoch": state.epoch, "metrics": metrics}
            self._write({**entry, "training": self._view is not None})

    def on_predict(self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any, **kwargs: Any) -> None:
        if self._has_begun:
            self._write({"event": "prediction", "step": state.global_step, "metrics": metrics})

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._note_best(args, state)  # the save itself is recorded once it is complete

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._has_begun and self._view is not None:
            self._note_best(args, state)
            entry = {"event": "epoch", "step": state.global_step, "epoch": state.epoch}
            self._write({**entry, "rows": self._view.read_coverage()})

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._has_begun and self._view is not None:
            self._note_best(args, state)
            entry = {"event": "end", "step": state.global_step, "epoch": state.epoch, "of_steps": state.max_steps}
            best = state.best_model_checkpoint
            entry["best_checkpoint"] = None if best is None else Path(best).name
            self._write({**entry, "seconds": _round(self._view.read_seconds()), "memory": self._view.read_memory()})

    # ---- lines ----------------------------------------------------------------------------------------------------

    def _note_best(self, args: Any, state: TrainerState) -> None:
        """Record a new best metric: an evaluation is compared after its own event."""
        if self._has_begun and state.best_metric is not None and state.best_metric != self._best:
            self._best = state.best_metric
            name = args.metric_for_best_model or "loss"
            metric = name if name.startswith("eval_") else f"eval_{name}"
            self._write({"event": "best", "step": self._evaluated_at, "metric": metric, "value": self._best})

    def _write(self, entry: Mapping[str, Any]) -> None:
        self._append(format_json({"v": VERSION, "run": self._run_id, "time": round(time.time(), 3), **entry}))

    def _format_memory(self, memory: dict[str, int]) -> str:
        if memory is not self._memory:  # one measurement serves many lines
            self._memory, self._memory_json = memory, format_json(memory)
        return self._memory_json

    def _append(self, line: str) -> None:
        assert self._file is not None
        self._file.append_line(line)
        if self._view is None:  # after the run, nothing else closes it
            self._file.close()


def _describe_start(view: RunView) -> dict[str, Any]:
    """Return what is known at the start; a dataset or model that cannot be described does not stop training."""
    try:
        return view.describe_start()
    except Exception as error:
        warn(f"the journal does not record how this run started: {type(error).__name__}: {error}")
        return {}


def _round(seconds: Mapping[str, float]) -> dict[str, float]:
    return {purpose: round(part, 4) for purpose, part in seconds.items()}


def _find_signal(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "SIGINT"
    code = error.code if isinstance(error, SystemExit) else None
    if isinstance(code, int) and code > _SIGNAL_OFFSET and code - _SIGNAL_OFFSET in set(Signals):
        return Signals(code - _SIGNAL_OFFSET).name
    return "exit"


def _describe_error(error: BaseException) -> dict[str, Any]:
    """Return the message of an error, and where it came from."""
    described: dict[str, Any] = {"type": type(error).__name__, "text": remove_keys(str(error))[:_MAX_TEXT]}
    if isinstance(error, OstinatoError):
        described.update({name: remove_keys(getattr(error, name))[:_MAX_TEXT] for name in ("what", "why", "fix")})
    where = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    described["traceback"] = remove_keys(where)[-_MAX_TRACEBACK:]
    return described
