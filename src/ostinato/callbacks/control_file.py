"""Control a run in progress: write commands into a file in its directory.

echo save > out/control          done after the current step; `out/control.done` lists the results

save | evaluate | log            now, whatever the intervals are
lr 1e-5 | lr x0.5                the next rate; the schedule continues from it, in its shape
pause                            wait, until `resume` is written or `control.paused` is deleted
stop                             save, and return from `train`
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core.choices import IntervalStrategy, SaveStrategy
from ..core.notices import note, note_once, warn
from ..core.pauses import add_pause
from ..core.state import TrainerControl, TrainerState
from ..core.stop_request import ask_to_stop, is_stopping
from .events import QuietCallback
from .group_rates import scale_rates

SECONDS_BETWEEN_LOOKS = 1.0
_LONGEST = 4096  # bytes: a file of commands is short, and any user may have written it
_COMMANDS = ("save", "evaluate", "log", "lr RATE", "lr xFACTOR", "pause", "resume", "stop")
# A user who can write there must not make a run read another file, or wait for one that has no end.
_AS_IT_IS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Processes:
    """The processes of a run, as the callback sees them. By default there is only this one."""

    ask_every = 1  # steps: how often all of them ask the first for what it has read

    def broadcast_text(self, text: str) -> str:
        """Return the text of the first process. All processes have to call it."""
        return text

    def is_stopping(self) -> bool:
        """Return whether any process was asked to stop. All processes have to call it."""
        return is_stopping()

    def exclude_wait(self, seconds: float) -> None:
        """Record that nothing was trained for so long; called after a pause."""


class ControlFileCallback(QuietCallback):
    """Carry out commands that are written into the file `control` in the run's directory, after the current step.

    The file is checked once a second. Then it is renamed to `control.done`, with the result of each line. With several
    processes the first reads the file; all ask it every ten steps, and do the same after the same step.

    Args:
        name: The name of the file.

    >>> Trainer(..., callbacks=[ControlFileCallback()])  # doctest: +SKIP
    """

    def __init__(self, name: str = "control") -> None:
        self.name = name
        self._processes = Processes()
        self._look_at = 0.0
        self._unfinished: str | None = None  # a text without an end of line, seen once
        self._pauses = False

    def join(self, processes: Processes) -> None:
        """Carry out commands together with these processes, until the run that begins has ended.

        Args:
            processes: The processes of the run.
        """
        self._processes = processes

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._file = Path(args.output_dir or ".") / self.name
        self._is_first = self._reads = state.is_world_process_zero
        self._look_at, self._unfinished, self._pauses = 0.0, None, False
        if lines := self._take(finished=True):
            self._answer([f"{line[:80]}: not done: written before this run began" for line in lines])
            note(f"{self._file} has no effect: it was written before this run began")

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step % self._processes.ask_every == 0:
            self._execute(self._read_new_lines(), args, state, control, kwargs)

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._pauses:  # now: what was requested together with it is done
            self._pauses = False
            self._wait(args, state, control, kwargs)

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._processes = Processes()

    # ---- the file

    def _read_new_lines(self) -> list[str]:
        """Return the commands in the file, if it is time to check it."""
        if (now := time.monotonic()) < self._look_at:
            return []
        self._look_at = now + SECONDS_BETWEEN_LOOKS
        return self._take()

    def _take(self, *, finished: bool = False) -> list[str]:
        """Return the commands in the file, and rename it, so that in any case they are carried out once.

        A text that does not end with a line break is perhaps being written, unless it is known to be `finished`.
        """
        if not self._reads or (text := _read_text(self._file)) is None:
            return []
        if not (finished or text.endswith("\n") or text == self._unfinished):
            self._unfinished = text
            return []
        self._unfinished = None
        aside = self._build_path("done")
        try:
            os.replace(self._file, aside)
        except OSError as error:
            warn(f"{self._file} has no effect: it cannot be put aside: {error}")
            self._reads = False
            return []
        # Read again: it may have been written to since, and under its new name it no longer is.
        lines = [line.strip() for line in (_read_text(aside) or "").splitlines()]
        return [line for line in lines if line and not line.startswith("#")]

    def _answer(self, answers: list[str]) -> None:
        with suppress(OSError):
            self._build_path("done").write_text("".join(f"{answer}\n" for answer in answers), encoding="utf-8")

    def _build_path(self, ending: str) -> Path:
        return self._file.with_name(f"{self.name}.{ending}")

    # ---- the commands

    def _execute(
        self, lines: list[str], args: Any, state: TrainerState, control: TrainerControl, given: dict[str, Any]
    ) -> list[str]:
        """Carry out what the first process has read; return its lines."""
        lines = self._processes.broadcast_text("\n".join(lines)).splitlines()
        answers = []
        for line in lines:
            answer = self._execute_line(line, args, control, given)
            answers.append(f"step {state.global_step}: {line[:80]}: {answer}")
            note(f"step {state.global_step}: {self.name} file: {line[:80]!r}: {answer}")
        if answers and self._is_first:
            self._answer(answers)
        return lines

    def _execute_line(self, line: str, args: Any, control: TrainerControl, given: dict[str, Any]) -> str:
        """Carry out one line; return the result."""
        command, *words = line.split()
        if command == "stop" and not words:
            ask_to_stop(f"{self.name}: stop")
            return "done"
        if command == "lr" and len(words) == 1:
            return _change_rate(words[0], given["optimizer"], given["lr_scheduler"])
        simple: dict[str, Callable[[], str]] = {
            "save": lambda: _save(args, control),
            "evaluate": lambda: _evaluate(args, control, given.get("eval_dataloader")),
            "log": lambda: _raise_flag(control, "should_log"),
            "pause": self._ask_to_pause,
            "resume": lambda: "done",
        }
        if command in simple and not words:
            return simple[command]()
        return f"not done: no such command; there are: {', '.join(_COMMANDS)}"

    def _ask_to_pause(self) -> str:
        self._pauses = True
        return "done"

    def _wait(self, args: Any, state: TrainerState, control: TrainerControl, given: dict[str, Any]) -> None:
        """Wait until the run is resumed. A signal to any of the processes is handled as usual.

        Every process asks the first repeatedly: an exchange that waits for a whole pause would time out.
        """
        paused, began = self._build_path("paused"), time.monotonic()
        if self._is_first:
            with suppress(OSError):  # as if it had been deleted immediately
                paused.write_text(f"after step {state.global_step}; delete this file to go on\n", encoding="utf-8")
        note(f"paused after step {state.global_step}: `echo resume > {self._file}` goes on")
        # Other commands during the pause are carried out at the end of the step that begins here.
        while not self._processes.is_stopping():
            lines = self._take()
            if self._is_first and not paused.exists():
                lines.append("resume")
            if "resume" in self._execute(lines, args, state, control, given):
                break
            time.sleep(SECONDS_BETWEEN_LOOKS / 4)
        self._pauses = False
        if self._is_first:
            with suppress(OSError):
                paused.unlink(missing_ok=True)
        seconds = time.monotonic() - began
        add_pause(seconds)
        self._processes.exclude_wait(seconds)
        note(f"going on with step {state.global_step + 1} after a pause of {seconds:.0f} s")


def _read_text(path: Path) -> str | None:
    """Return the text of a file of commands; None if there is none."""
    try:
        with open(os.open(path, _AS_IT_IS), "rb") as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read(_LONGEST + 1) if is_file else b""
    except FileNotFoundError:  # most of the time
        return None
    except OSError:
        is_file, content = False, b""
    if not is_file:
        note_once(f"{path} has no effect: it is not a file that can be read")
        return None
    if len(content) > _LONGEST:
        return f"a file of more than {_LONGEST} bytes\n"
    text = content.decode("utf-8-sig", errors="replace")
    return "".join(each if each.isprintable() or each == "\n" else " " for each in text)


def _raise_flag(control: TrainerControl, flag: str) -> str:
    setattr(control, flag, True)
    return "done"


def _save(args: Any, control: TrainerControl) -> str:
    if args.save_strategy == SaveStrategy.NO:
        return "not done: this run saves nothing, because save_strategy is 'no'"
    return _raise_flag(control, "should_save")


def _evaluate(args: Any, control: TrainerControl, loader: Any) -> str:
    if args.eval_strategy == IntervalStrategy.NO and loader is None:  # perhaps there is nothing to evaluate with
        return "not done: this run does not evaluate, because eval_strategy is 'no'"
    return _raise_flag(control, "should_evaluate")


def _change_rate(word: str, optimizer: Any, scheduler: Any) -> str:
    """Change the next rate: to a number, or by `x` and a factor."""
    if optimizer.param_groups[0]["lr"] is None:
        return "not done: the optimizer computes its own rate"
    before = float(optimizer.param_groups[0]["lr"])
    try:
        number = float(word.removeprefix("x"))
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        return "not done: a rate is a number above 0, or x and a factor, such as 1e-5 or x0.5"
    if before == 0 and not word.startswith("x"):
        return "not done: the rate is 0 now, and what the schedule makes of it is not known; lr x0.5 works"
    factor = number if word.startswith("x") else number / before
    scale_rates(optimizer, scheduler, factor)
    return f"done: {before:.4g} → {float(optimizer.param_groups[0]['lr']):.4g}, and the schedule goes on from it"
