"""Change a run while it goes on: write commands into a file in its directory.

echo save > out/control          done after the step at hand; `out/control.done` says what was done

save | evaluate | log            now, whatever the intervals are
lr 1e-5 | lr x0.5                the next rate; the schedule goes on from it, in its shape
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
from ..core.notices import note, warn
from ..core.state import TrainerControl, TrainerState
from ..core.stopping import ask_to_stop, is_stopping
from .base import QuietCallback
from .rates import scale_rates

SECONDS_BETWEEN_LOOKS = 1.0
_LONGEST = 4096  # bytes: a file of commands is short, and anybody may have written it
_COMMANDS = ("save", "evaluate", "log", "lr RATE", "lr xFACTOR", "pause", "resume", "stop")


class ControlFileCallback(QuietCallback):
    """Obeys commands that are written into the file `control` in the run's directory, after the step at hand.

    The file is looked for once a second. Once obeyed it is called `control.done`, and says what came of each line.
    With several processes `stop` is the only command.

    >>> Trainer(..., callbacks=[ControlFileCallback()])  # doctest: +SKIP
    """

    def __init__(self, name: str = "control") -> None:
        self.name = name
        self._look_at = 0.0
        self._unfinished: str | None = None  # a text without an end of line, seen once
        self._pauses = False

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._file = Path(args.output_dir or ".") / self.name
        self._reads = state.is_world_process_zero
        self._several = args.world_size > 1
        self._look_at, self._unfinished, self._pauses = 0.0, None, False
        if self._reads and (lines := self._take()):
            self._answer([f"{line[:80]}: not done: written before this run began" for line in lines])
            note(f"{self._file} is not obeyed: it was written before this run began")

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if (now := time.monotonic()) < self._look_at:
            return
        self._look_at = now + SECONDS_BETWEEN_LOOKS
        if self._reads:
            self._obey(args, state, control, kwargs)

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._pauses:  # now: what was asked for together with it is done
            self._pauses = False
            self._wait(args, state, control, kwargs)

    # ---- the file

    def _read(self) -> list[str]:
        """The commands in the file, if there is one and it is written to its end."""
        try:
            if not stat.S_ISREG(os.lstat(self._file).st_mode):
                return []
            with open(self._file, "rb") as file:
                text = file.read(_LONGEST).decode("utf-8", errors="replace")
        except OSError:  # most of the time there is none
            return []
        if not text.endswith("\n") and text != self._unfinished:
            self._unfinished = text
            return []
        self._unfinished = None
        return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]

    def _take(self) -> list[str]:
        """The commands in the file, which is put aside: whatever happens, they are obeyed once."""
        if lines := self._read():
            try:
                os.replace(self._file, self._beside("done"))
            except OSError as error:
                warn(f"{self._file} is not obeyed: it cannot be put aside: {error}")
                self._reads = False
                return []
        return lines

    def _answer(self, answers: list[str]) -> None:
        with suppress(OSError):
            self._beside("done").write_text("".join(f"{answer}\n" for answer in answers), encoding="utf-8")

    def _beside(self, ending: str) -> Path:
        return self._file.with_name(f"{self.name}.{ending}")

    # ---- the commands

    def _obey(self, args: Any, state: TrainerState, control: TrainerControl, given: dict[str, Any]) -> list[str]:
        lines = self._take()
        answers = []
        for line in lines:
            answer = self._do(line, args, control, given)
            answers.append(f"step {state.global_step}: {line[:80]}: {answer}")
            note(f"step {state.global_step}: {self.name} file: {line[:80]!r}: {answer}")
        if lines:
            self._answer(answers)
        return lines

    def _do(self, line: str, args: Any, control: TrainerControl, given: dict[str, Any]) -> str:
        """Do what a line says; what came of it."""
        command, *words = line.split()
        if command == "stop" and not words:
            ask_to_stop(f"{self.name}: stop")
            return "done"
        if self._several and command in ("save", "evaluate", "log", "lr", "pause", "resume"):
            return "not done: with several processes `stop` is the only command"
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
        """Stand still until somebody says otherwise. A signal is obeyed as ever."""
        paused, began = self._beside("paused"), time.monotonic()
        paused.write_text(f"after step {state.global_step}; delete this file to go on\n", encoding="utf-8")
        note(f"paused after step {state.global_step}: `echo resume > {self._file}` goes on")
        # What else is asked for meanwhile is done at the end of the step that begins here.
        while paused.exists() and not is_stopping():
            if "resume" in self._obey(args, state, control, given):
                break
            time.sleep(SECONDS_BETWEEN_LOOKS / 4)
        self._pauses = False
        paused.unlink(missing_ok=True)
        note(f"going on with step {state.global_step + 1} after a pause of {time.monotonic() - began:.0f} s")


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
    """Make the next rate another one: a number, or `x` and a factor."""
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
        return "not done: the rate is 0 now, and what the schedule makes of it cannot be told; lr x0.5 works"
    factor = number if word.startswith("x") else number / before
    scale_rates(optimizer, scheduler, factor)
    return f"done: {before:.4g} → {float(optimizer.param_groups[0]['lr']):.4g}, and the schedule goes on from it"
