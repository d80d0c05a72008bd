"""The progress bar on real pseudo terminals, plain lines in pipes, and transformers' dict lines."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import random
import re
import struct
import subprocess
import sys
import termios
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.cells import cell_len
from torch import nn

import ostinato
from ostinato.callbacks.events import QuietCallback
from ostinato.callbacks.flow import DefaultFlowCallback
from ostinato.callbacks.handler import CallbackHandler
from ostinato.core import notices
from ostinato.core.state import TrainerControl, TrainerState
from ostinato.progress import callback as progress
from ostinato.progress import live as screen
from ostinato.progress import speed, stdout_proxy
from ostinato.progress.callback import PrinterCallback, ProgressCallback
from ostinato.progress.messages import ObservedRun
from ostinato.progress.plain import format_plain_line

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs pseudo terminals")

CONTROL = TrainerControl()
DRIVER = """
    import sys, threading, types
    from ostinato.progress.callback import ProgressCallback
    from ostinato.core.state import TrainerControl, TrainerState

    args = types.SimpleNamespace(
        train_batch_size=8, world_size=1, data_size=1, gradient_accumulation_steps=2, metric_for_best_model="accuracy",
        greater_is_better=True,
    )
    bar, control, stdout = ProgressCallback(), TrainerControl(), sys.stdout
    state = TrainerState(max_steps=4, num_train_epochs=2)
    bar.on_train_begin(args, state, control)
    print("from the user")
    for step in range(1, 5):
        state.global_step, state.epoch = step, step / 2
        bar.on_step_end(args, state, control)
        logs = {"loss": 2 / step, "grad_norm": 1.23456, "learning_rate": 5e-5 / step, "epoch": state.epoch}
        bar.on_log(args, state, control, logs=logs)
        if step == 3 and "crash" in sys.argv:
            raise RuntimeError("boom")
        if step % 2 == 0:
            loader = [0] * 3
            for _ in loader:
                bar.on_prediction_step(args, state, control, eval_dataloader=loader)
            metrics = {"eval_loss": 0.51234, "eval_accuracy": 0.75 - step / 100, "eval_runtime": 1.5}
            bar.on_log(args, state, control, logs={**metrics, "epoch": state.epoch})
            bar.on_evaluate(args, state, control, metrics=metrics)
    bar.on_log(args, state, control, logs={"train_runtime": 9.87, "train_loss": 1.04, "total_flos": 7.0, "epoch": 2.0})
    bar.on_train_end(args, state, control)
    assert sys.stdout is stdout
    assert threading.active_count() == 1
    print("rich" in sys.modules)
"""


# ------------------------------------------------------------------------------------------------ terminals to look at


class Terminal:
    """A pseudo terminal that somebody reads: what was written to it, and what it would show."""

    def __init__(self, width: int = 100, encoding: str = "utf-8") -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        self.stream = io.TextIOWrapper(os.fdopen(os.dup(self.slave), "wb", 0), encoding=encoding, write_through=True)
        self._chunks: list[bytes] = []
        self._streams: tuple[Any, Any] | None = None
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self.master, 65536)
            except OSError:  # the last writer has gone
                return
            if not chunk:
                return
            self._chunks.append(chunk)

    def plug_in(self) -> None:
        """Be standard output and error. Not for a fixture to do: pytest replaces both between setup and test."""
        self._streams = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = self.stream

    def close(self) -> str:
        """End of transmission; everything that was written."""
        if self._streams is not None:
            (sys.stdout, sys.stderr), self._streams = self._streams, None
        if self._reader.is_alive():
            self.stream.close()
            os.close(self.slave)
            self._reader.join()
            os.close(self.master)
        return b"".join(self._chunks).decode()


CODES = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


def screen_of(written: str) -> list[str]:
    """The lines down to the cursor in the end; understands what a live display uses and refuses anything else."""
    lines, row, column = [""], 0, 0
    for code in CODES.finditer(written):
        text, number, letter = code.group(0), code.group(1), code.group(2)
        if text == "\r":
            column = 0
        elif text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif letter == "A":
            row -= int(number or 1)
        elif letter == "K":
            assert number == "2"
            lines[row] = ""
        elif letter is None:
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
            column += len(text)
        else:
            assert letter == "m" or number == "?25", f"unexpected control code {text!r}"
    assert not "".join(lines[row + 1 :]).strip(), "something is left below the cursor"
    return [line.rstrip() for line in lines[: row + 1]]


def text_of(written: str) -> str:
    """Everything that was ever visible."""
    return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", written)


class Driven:
    """The driver in a process of its own, on a terminal or in pipes."""

    def __init__(self, *argv: str, terminal: Terminal | None = None, **environment: str) -> None:
        source = str(Path(progress.__file__).parents[2])
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": source, "OMP_NUM_THREADS": "1", **environment}
        stream = subprocess.PIPE if terminal is None else terminal.stream
        self.terminal = terminal
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(DRIVER), *argv],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            text=True,
            env=env,
        )

    def finish(self) -> None:
        self.stdout, self.stderr = self.process.communicate(timeout=120)
        self.written = self.terminal.close() if self.terminal is not None else ""


@pytest.fixture(scope="module")
def driven() -> dict[str, Driven]:
    """Three runs at the same time: most of a run is its imports."""
    runs = {
        "terminal": Driven(terminal=Terminal(width=80), TERM="xterm-256color"),
        "crash": Driven("crash", terminal=Terminal(width=80), TERM="xterm-256color"),
        "pipe": Driven(TERM="xterm-256color", FORCE_COLOR="1"),
    }
    for run in runs.values():
        run.finish()
    return runs


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal of 100 columns, to be plugged in."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")  # rich would ask the real standard streams
    for name in ("LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    terminal = Terminal()
    yield terminal
    terminal.close()


class Time:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    for module in (speed, progress, screen):
        monkeypatch.setattr(module, "time", time)
    return time


def arguments(**changes: Any) -> Any:
    values = {
        "train_batch_size": 8,
        "world_size": 2,
        "data_size": 2,
        "gradient_accumulation_steps": 4,
        "metric_for_best_model": None,
        "greater_is_better": None,
    }
    return SimpleNamespace(**{**values, **changes})


def begun(bar: ProgressCallback, args: Any = None, **fields: Any) -> TrainerState:
    state = TrainerState(**{"max_steps": 100, "num_train_epochs": 2, **fields})
    bar.on_train_begin(args or arguments(), state, CONTROL)
    return state


def step_to(bar: ProgressCallback, state: TrainerState, step: int) -> None:
    state.global_step, state.epoch = step, step / 50
    bar.on_step_end(arguments(), state, CONTROL)


def evaluate(
    bar: ProgressCallback, state: TrainerState, args: Any = None, loader: Any = (1, 2), **metrics: Any
) -> None:
    """As `Trainer.evaluate` does: the metrics are logged first."""
    args = args or arguments()
    for _ in range(2):
        bar.on_prediction_step(args, state, CONTROL, eval_dataloader=loader)
    bar.on_log(args, state, CONTROL, logs={**metrics, "epoch": state.epoch})
    bar.on_evaluate(args, state, CONTROL, metrics=metrics)


# -------------------------------------------------------------------------------------------- whole runs, from outside


def test_a_terminal_shows_a_bar_and_gets_back_its_line(driven: dict[str, Driven]) -> None:
    written = driven["terminal"].written
    assert driven["terminal"].process.returncode == 0, written
    seen, final = text_of(written), screen_of(written)
    assert re.search(r"train ━+ +0%  step 0/4  epoch 0.00/2", seen)
    assert "      loss 2  lr 5e-05  grad 1.23" in seen
    assert final[:8] == [
        "from the user",
        "step 1  epoch 0.50  loss 2       lr 5e-05     grad 1.23",
        "step 2  epoch 1.00  loss 1       lr 2.5e-05   grad 1.23",
        "step 2  epoch 1.00  eval  loss 0.5123  accuracy 0.73 best  1.5 s",
        "step 3  epoch 1.50  loss 0.6667  lr 1.67e-05  grad 1.23",
        "step 4  epoch 2.00  loss 0.5     lr 1.25e-05  grad 1.23",
        "step 4  epoch 2.00  eval  loss 0.5123  accuracy 0.71 ↓  1.5 s",
        "step 4  epoch 2.00  train  loss 1.04    9.9 s",
    ]
    assert re.fullmatch(r"train ━+ 100%  step 4/4  epoch 2.00/2  in 0:0\d", final[8])
    assert re.fullmatch(r"      loss 0.5  lr 1.25e-05  grad 1.23  \S+ samples/s", final[9])
    assert final[10:] == ["True", ""]
    assert max(len(line) for line in final) <= 80
    assert written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l"), "the cursor is hidden"


def test_an_exception_leaves_a_whole_screen(driven: dict[str, Driven]) -> None:
    written = driven["crash"].written
    final = screen_of(written)
    assert driven["crash"].process.returncode == 1
    assert "RuntimeError: boom" in final
    assert "step 3  epoch 1.50  loss 0.6667  lr 1.67e-05  grad 1.23" in final
    assert re.fullmatch(r"train ━*[╸╺]━*  75%  step 3/4  epoch 1.50/2  interrupted after 0:0\d", final[-3])
    assert final[-2].startswith("      loss 0.6667  lr 1.67e-05  grad 1.23")
    assert final[-1] == ""
    assert written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l"), "the cursor is hidden"


def test_a_pipe_gets_plain_lines_and_no_rich(driven: dict[str, Driven]) -> None:
    run = driven["pipe"]
    assert run.process.returncode == 0, run.stderr
    assert run.stdout == textwrap.dedent("""\
        from the user
        step 1 epoch 0.50 loss 2 lr 5e-05 grad 1.23
        step 2 epoch 1.00 loss 1 lr 2.5e-05 grad 1.23 0:00 left
        step 2 epoch 1.00 eval_loss 0.5123 eval_accuracy 0.73 (best) eval_runtime 1.5
        step 3 epoch 1.50 loss 0.6667 lr 1.67e-05 grad 1.23 0:00 left
        step 4 epoch 2.00 loss 0.5 lr 1.25e-05 grad 1.23
        step 4 epoch 2.00 eval_loss 0.5123 eval_accuracy 0.71 eval_runtime 1.5
        step 4 epoch 2.00 train_runtime 9.87 train_loss 1.04
        False
        """)
    assert run.stderr == ""


# ---------------------------------------------------------------------------------------------------- the bar, by hand


def test_speed_is_of_training_alone_and_time_left_of_everything(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar)
    clock.now += 60  # the first step warms up
    step_to(bar, state, 1)
    for step in range(2, 12):
        clock.now += 1
        step_to(bar, state, step)
    clock.now += 0.5  # reading the loss waits for the device: still training
    bar.on_log(arguments(), state, CONTROL, logs={"loss": 0.5})
    loader = [1] * 7
    for _ in range(5):
        clock.now += 3
        bar.on_prediction_step(arguments(), state, CONTROL, eval_dataloader=loader)
    evaluate(bar, state, loader=loader, eval_loss=0.4)
    clock.now += 5
    bar.on_save(arguments(), state, CONTROL)
    clock.now += 0.5
    step_to(bar, state, 12)
    bar.stop()
    seen = text_of(terminal.close())
    # 11 steps of 64 samples in 11 s of training and 31 s in all; 88 steps remain.
    assert "64 samples/s" in seen.splitlines()[-1]
    assert "4:08 left" in seen
    assert re.search(r"12%  step 12/100  epoch 0.24/2  interrupted after 1:31", seen)


def test_skipping_has_a_bar(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar)
    clock.now += 10
    assert bar.show_skipping(1000, 4000, "rows")
    bar.show_skipping(None, 4000, "rows")
    step_to(bar, state, 1)
    bar.stop()
    written = terminal.close()
    assert re.search(r"skip .* 25%  rows 1000/4000  0:30 left", text_of(written))
    assert "skip" not in text_of(written).splitlines()[-1]


def test_a_save_that_training_waits_for_has_a_bar(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar)
    step_to(bar, state, 50)
    bar.show_saving("checkpoint-50", 0, 0)
    for done in (300_000_000, 900_000_000):
        clock.now += 2
        bar.show_saving("checkpoint-50", done, 1_200_000_000)
    bar.show_saving(None, 0, 0)
    step_to(bar, state, 51)
    bar.stop()
    written = terminal.close()
    drawn = re.findall(r"save  [ ━╺╸]*(.*?checkpoint-50)", text_of(written))
    assert drawn == [
        "checkpoint-50",
        "25%  0.30/1.20 GB  checkpoint-50",
        "75%  0.90/1.20 GB  checkpoint-50",
    ]
    assert not any("save" in line for line in screen_of(written))


def test_skipping_is_not_shown_without_a_terminal() -> None:
    bar = ProgressCallback()
    begun(bar)
    assert not bar.show_skipping(1, 2, "rows")


def test_the_first_loss_shows_at_once_and_later_ones_replace_it(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar)
    step_to(bar, state, 1)
    bar.on_log(arguments(), state, CONTROL, logs={"loss": 0.75, "learning_rate": 1e-3, "grad_norm": 2.0})
    clock.now += 1
    step_to(bar, state, 2)
    bar.on_log(arguments(), state, CONTROL, logs={"loss": 0.25, "learning_rate": 1e-4, "grad_norm": 1.0})
    clock.now += 1
    step_to(bar, state, 3)
    bar.stop()
    final = screen_of(terminal.close())
    assert final[:2] == [
        "step   1  epoch 0.02  loss 0.75    lr 0.001     grad 2",
        "step   2  epoch 0.04  loss 0.25    lr 0.0001    grad 1",
    ]
    assert final[3] == "      loss 0.25  lr 0.0001  grad 1  64 samples/s"


HEADER = "training Net on cpu in float32: 771 parameters, 800 rows, 100 steps of 8 rows"


def introduced(bar: ProgressCallback, header: str = HEADER, expected: float | None = None) -> TrainerState:
    """A run that begins with a line about itself."""
    bar.watch(ObservedRun(header, "out", dict, lambda: None, workers=0, cores=2, expected=lambda: expected))
    return begun(bar)


def test_the_header_has_the_total_time_once_it_is_known(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = introduced(bar)
    clock.now += 5  # the first step warms up, and tells nothing of the others
    step_to(bar, state, 1)
    clock.now += 1
    step_to(bar, state, 2)
    bar.on_log(arguments(), state, CONTROL, logs={"loss": 0.5})
    bar.stop()
    final = screen_of(terminal.close())
    assert final[0] == f"{HEADER}, about 1:44"  # five seconds, and 99 steps of one second
    assert final[1].startswith("step   2")
    assert not any(HEADER in line for line in final[1:])


def test_the_header_is_seen_before_the_first_step(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    introduced(bar)
    while HEADER not in b"".join(terminal._chunks).decode():  # the reader is a thread
        threading.Event().wait(0.01)
    bar.stop()
    final = screen_of(terminal.close())
    assert final[0] == HEADER and not any(HEADER in line for line in final[1:])


@pytest.mark.parametrize("what", ["log", "print"])
def test_the_header_comes_first_whatever_else_is_said(what: str, terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = introduced(bar)
    step_to(bar, state, 1)
    if what == "log":
        bar.on_log(arguments(), state, CONTROL, logs={"loss": 0.5})
    else:
        print("from the user")
    clock.now += 1
    step_to(bar, state, 2)
    bar.stop()
    final = screen_of(terminal.close())
    assert final[0] == HEADER
    assert final[1].startswith("step   1" if what == "log" else "from the user")
    assert not any(HEADER in line for line in final[1:])


def test_the_estimate_of_a_rehearsal_is_in_the_header(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = introduced(bar, expected=90.0)
    step_to(bar, state, 1)
    bar.stop()
    assert screen_of(terminal.close())[0] == f"{HEADER}, about 1:30"


def test_a_long_header_takes_one_line_while_it_is_live(monkeypatch: pytest.MonkeyPatch, clock: Time) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "46")
    narrow = Terminal(width=46)
    narrow.plug_in()
    bar = ProgressCallback()
    state = introduced(bar, header=HEADER.replace("Net", "網" * 40))
    step_to(bar, state, 1)
    clock.now += 1
    step_to(bar, state, 2)
    bar.stop()
    written = narrow.close()
    live = text_of(written).split("train ")[0]
    assert live.strip() and all(cell_len(line.strip("\r")) <= 46 for line in live.splitlines())
    assert "about 1:39" in " ".join(screen_of(written))


def test_many_steps_draw_a_few_times_a_second(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar, max_steps=5000)
    for step in range(1, 5001):
        clock.now += 0.001
        step_to(bar, state, step)
    bar.stop()
    assert 15 <= text_of(terminal.close()).count("train ━") <= 25


def test_drawing_that_takes_long_is_done_seldom(
    terminal: Terminal, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A two-hundredth of the time is for drawing, whatever the machine and the terminal are like."""
    newest = screen.Screen._build_numbers_row

    def slow(*given: Any) -> Any:
        clock.now += 0.01
        return newest(*given)

    monkeypatch.setattr(screen.Screen, "_build_numbers_row", slow)
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar, max_steps=5000)
    for step in range(1, 5001):
        clock.now += 0.001
        step_to(bar, state, step)
        bar.on_log(arguments(), state, CONTROL, logs={"loss": float(step)})
    bar.stop()
    assert 4 <= text_of(terminal.close()).count("train ━") <= 9


def test_lines_that_come_fast_are_drawn_together_and_none_is_lost(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar, max_steps=500)
    for step in range(1, 501):
        clock.now += 0.001
        step_to(bar, state, step)
        bar.on_log(arguments(), state, CONTROL, logs={"loss": float(step)})
    bar.on_train_end(arguments(), state, CONTROL)
    written = terminal.close()
    assert [line for line in screen_of(written) if line.startswith("step")] == [
        f"step {step:3d}  epoch {step / 50:.2f}  loss {step}" for step in range(1, 501)
    ]
    assert text_of(written).count("train ━") < 20


def test_a_long_line_is_broken_between_numbers(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar)
    step_to(bar, state, 1)
    bar.on_log(arguments(), state, CONTROL, logs={"loss": 1.0, **{f"number_{n}": n / 7 for n in range(12)}})
    bar.on_train_end(arguments(), state, CONTROL)
    lines = [line for line in screen_of(terminal.close()) if "number_" in line]
    assert len(lines) == 3 and all(len(line) <= 100 for line in lines) and lines[1].startswith("      number_4 0.5714")
    numbers = [f"number_{n} {n / 7:.4g}" for n in range(12)]
    assert " ".join(" ".join(lines).split()) == " ".join(["step 1 epoch 0.02 loss 1", *numbers])


def test_an_evaluation_has_a_bar_of_its_own_that_goes_away(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar)
    loader = [1] * 8
    for _ in range(6):
        clock.now += 1
        bar.on_prediction_step(arguments(), state, CONTROL, eval_dataloader=loader)
    evaluate(bar, state, loader=loader, eval_loss=0.4)
    bar.on_train_end(arguments(), state, CONTROL)
    written = terminal.close()
    assert re.search(r"eval  ━*[╸╺]━*  75%  batch 6/8", text_of(written))
    assert not [line for line in screen_of(written) if line.startswith("eval")]


@pytest.mark.parametrize("loader", [iter([1, 2]), object(), None], ids=["iterator", "object", "none"])
def test_an_evaluation_of_unknown_length_counts_batches(loader: Any, terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar, state = ProgressCallback(), TrainerState()
    for _ in range(2):
        clock.now += 1
        bar.on_prediction_step(arguments(), state, CONTROL, eval_dataloader=loader)
    bar.on_predict(arguments(), state, CONTROL, metrics={"test_loss": 1.0})
    assert "batch 2" in text_of(terminal.close())


def test_evaluating_without_training_shows_one_bar_and_leaves_one_line(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar, state = ProgressCallback(), TrainerState(global_step=7, epoch=1.0)
    stdout = sys.stdout
    evaluate(bar, state, eval_loss=0.4, eval_runtime=2.0, eval_samples_per_second=9.0)
    assert sys.stdout is stdout
    written = terminal.close()
    assert "batch 0/2" in text_of(written)
    assert "train" not in text_of(written)
    assert screen_of(written) == ["step 7  epoch 1.00  eval  loss 0.4     2.0 s", ""]


def test_predicting_without_training_leaves_nothing(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar, state = ProgressCallback(), TrainerState()
    bar.on_prediction_step(arguments(), state, CONTROL, eval_dataloader=[1, 2])
    bar.on_predict(arguments(), state, CONTROL, metrics={"test_loss": 1.0})
    assert screen_of(terminal.close()) == [""]


def test_a_second_evaluation_starts_at_zero_after_an_interrupted_one(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar, state = ProgressCallback(), TrainerState()
    for loader in ([1] * 50, [2] * 70):
        for _ in range(3):
            clock.now += 1
            bar.on_prediction_step(arguments(), state, CONTROL, eval_dataloader=loader)
    bar.on_predict(arguments(), state, CONTROL)
    seen = text_of(terminal.close())
    assert "batch 3/50" in seen
    assert "batch 0/70" in seen
    assert "batch 4/70" not in seen


def test_one_callback_serves_many_runs_even_if_one_of_them_died(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar, stdout = ProgressCallback(), sys.stdout
    dead = begun(bar)
    clock.now += 1
    step_to(bar, dead, 30)
    bar.on_prediction_step(arguments(), dead, CONTROL, eval_dataloader=[1] * 9)  # ... and here it was interrupted
    second = begun(bar, max_steps=10)
    clock.now += 1
    step_to(bar, second, 10)
    bar.on_train_end(arguments(), second, CONTROL)
    bar.on_train_end(arguments(), second, CONTROL)
    evaluate(bar, second, eval_loss=0.4)
    bar.stop()
    assert sys.stdout is stdout
    final = screen_of(terminal.close())
    assert [line[-50:] for line in final if line.startswith("train")] == [
        "  30%  step 30/100  epoch 0.60/2  interrupted after 0:01"[-50:],
        "━━ 100%  step 10/10  epoch 0.20/2  in 0:01"[-50:].rjust(50, "━"),
    ]
    assert not [line for line in final if line.startswith("eval")]
    assert final[-2:] == ["step 10  epoch 0.20  eval  loss 0.4", ""]


def test_no_thread_draws_and_the_cursor_stays_in_sight(terminal: Terminal) -> None:
    terminal.plug_in()
    threads = threading.enumerate()
    bar = ProgressCallback()
    begun(bar)
    assert threading.enumerate() == threads
    bar.stop()
    assert not re.search(r"\x1b\[\?25l(?!\x1b\[\?25h)", terminal.close()), "a killed run would leave no cursor"


def test_a_resumed_run_starts_where_it_was(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    begun(bar, global_step=40, epoch=0.8)
    bar.stop()
    assert " 40%  step 40/100  epoch 0.80/2" in text_of(terminal.close())


def test_a_run_without_a_known_end_counts_steps(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar, max_steps=-1, num_train_epochs=sys.maxsize)
    clock.now += 1
    step_to(bar, state, 25)
    bar.on_train_end(arguments(), state, CONTROL)
    seen = text_of(terminal.close())
    assert re.search(r"step 25  epoch 0.50  in 0:01", seen)
    assert "left" not in seen


def test_an_error_stream_that_is_no_terminal_stays_where_it_is(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.plug_in()
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    bar = ProgressCallback()
    begun(bar)
    print("to the file", file=sys.stderr)
    bar.stop()
    assert errors.getvalue() == "to the file\n"


def test_a_terminal_that_knows_only_ascii_is_served(monkeypatch: pytest.MonkeyPatch, clock: Time) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal(width=60, encoding="ascii")
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar)
    bar.on_log(arguments(), state, CONTROL, logs={"loss": 0.5})
    evaluate(bar, state, eval_loss=0.4)
    bar.on_train_end(arguments(), state, CONTROL)
    assert "eval  loss 0.4" in text_of(terminal.close())


def test_a_terminal_without_a_cursor_gets_plain_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.plug_in()
    monkeypatch.setenv("TERM", "dumb")
    bar = ProgressCallback()
    state = begun(bar)
    bar.on_log(arguments(), state, CONTROL, logs={"loss": 0.5})
    bar.on_train_end(arguments(), state, CONTROL)
    assert terminal.close() == "step 0 epoch 0.00 loss 0.5\r\n"


def test_a_log_of_the_epoch_alone_and_a_step_too_many_do_no_harm(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar, max_steps=2)
    for step in (1, 2, 3):
        clock.now += 1
        step_to(bar, state, step)
    bar.on_log(arguments(), state, CONTROL, logs={"epoch": 1.5})
    bar.on_train_end(arguments(), state, CONTROL)
    written = terminal.close()
    assert "100%  step 3/2  epoch 0.06/2  0:00 left" in text_of(written)
    assert screen_of(written)[0] == "step 3  epoch 1.50"


def test_names_and_texts_are_never_taken_for_markup(terminal: Terminal) -> None:
    terminal.plug_in()
    bar = ProgressCallback(max_str_len=12)
    bar.on_log(arguments(), TrainerState(), CONTROL, logs={"[red]x[/red]": 1.5, "said": "two\nlines of [bold]text"})
    assert screen_of(terminal.close()) == [
        "step 0  epoch 0.00  [red]x[/red] 1.5  said two lines of... (23 characters)",
        "",
    ]


# ------------------------------------------------------------------------------------------------- what others print


def test_what_is_printed_comes_after_what_was_logged_before(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar)
    for step in (1, 2, 3):
        step_to(bar, state, step)
        bar.on_log(arguments(), state, CONTROL, logs={"loss": float(step)})
        print(f"after {step}", file=sys.stderr if step == 2 else None)
    bar.on_train_end(arguments(), state, CONTROL)
    words = [line.split() for line in screen_of(terminal.close())]
    assert [(line[0], line[1]) for line in words[:6]] == [
        (word, str(step)) for step in (1, 2, 3) for word in ("step", "after")
    ]


def test_printed_control_codes_and_markup_have_no_effect(terminal: Terminal, clock: Time) -> None:
    """Texts in brackets are no markup, colours stay, and the cursor is not moved by others."""
    terminal.plug_in()
    bar = ProgressCallback()
    begun(bar)
    print("[red]a[/b] :smile:")
    print("[/b] a question? ", end="", flush=True)
    print("\x1b[31mred\x1b[0m \x1b[2J\x1b[5Acleared")
    bar.stop()
    written = terminal.close()
    assert screen_of(written)[:3] == ["[red]a[/b] :smile:", "[/b] a question?", "red cleared"]
    assert "\x1b[31mred\x1b[0m" in written


def test_only_the_last_state_of_another_bar_is_shown(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    begun(bar)
    for done in range(1000):
        print(f"\r{done}/1000", end="", flush=True)
    assert len(sys.stdout._unfinished) < 20  # type: ignore[attr-defined]
    print()
    for done in range(10):
        print(f"{done}/10", end="\r")
    print()
    bar.stop()
    written = terminal.close()
    assert screen_of(written)[:2] == ["999/1000", "9/10"]
    assert "998/1000" not in text_of(written)


def test_a_kept_proxy_writes_to_the_stream_after_the_end(terminal: Terminal) -> None:
    terminal.plug_in()
    stdout = sys.stdout
    bar = ProgressCallback()
    begun(bar)
    kept = sys.stdout
    assert (kept.encoding, kept.fileno(), kept.isatty()) == ("utf-8", stdout.fileno(), True)
    assert kept.writable()
    kept.writelines(["two ", "words\n"])
    print("unfinished", end="", file=kept)
    bar.stop()
    assert sys.stdout is stdout
    print(" business", file=kept)
    final = screen_of(terminal.close())
    assert (final[0], final[-2:]) == ("two words", ["unfinished business", ""])


def test_a_fork_writes_to_the_stream_itself(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    begun(bar)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(stdout_proxy.os, "getpid", lambda: -1)
        print("from a worker", end="")
    bar.stop()
    seen = text_of(terminal.close())
    assert seen.index("from a worker") < seen.index("interrupted")


def test_a_redirected_stdout_gets_no_bar(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar)
    inner = ProgressCallback()
    with contextlib.redirect_stdout(io.StringIO()) as elsewhere:
        clock.now += 1
        step_to(bar, state, 7)
        print("theirs")
    print("in between")
    begun(inner)  # a training inside of a training
    inner.on_log(arguments(), state, CONTROL, logs={"loss": 1.0})
    inner.stop()
    bar.stop()
    assert elsewhere.getvalue() == "theirs\n"
    final = screen_of(terminal.close())
    assert final[:2] == ["in between", "step 7 epoch 0.14 loss 1"]
    assert [line.split()[2] for line in final if line.startswith("train")] == ["7%"]


def test_threads_print_whole_lines(terminal: Terminal) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar)
    threads = [threading.Thread(target=lambda: [print("a line") for _ in range(20)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(1, 40):
        step_to(bar, state, step)
        bar.on_log(arguments(), state, CONTROL, logs={"loss": 1.0})
    for thread in threads:
        thread.join()
    bar.stop()
    final = screen_of(terminal.close())
    assert final.count("a line") == 60
    assert len([line for line in final if line.startswith("step")]) == 39


# ------------------------------------------------------------------------------------------------ streams of all kinds


class Tee:
    """What people put in the place of standard output."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("no space left on device")


def test_a_replaced_stream_needs_only_write(monkeypatch: pytest.MonkeyPatch) -> None:
    tee = Tee()
    monkeypatch.setattr(sys, "stdout", tee)
    bar = ProgressCallback()
    state = begun(bar)
    bar.on_log(arguments(), state, CONTROL, logs={"loss": 0.5})
    bar.on_train_end(arguments(), state, CONTROL)
    assert "".join(tee.texts) == "step 0 epoch 0.00 loss 0.5\n"


@pytest.mark.parametrize("kind", ["closed", "full", "none"])
def test_training_continues_when_the_pipe_is_closed(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notices, "_shown_keys", set())
    streams: dict[str, Any] = {"closed": io.StringIO(), "full": Full(), "none": None}
    streams["closed"].close()
    monkeypatch.setattr(sys, "stdout", streams[kind])
    bar = ProgressCallback()
    state = begun(bar)
    for _ in range(3):
        bar.on_log(arguments(), state, CONTROL, logs={"loss": 0.5})
    bar.on_train_end(arguments(), state, CONTROL)
    assert capsys.readouterr().err.count("progress is no longer shown, training continues") == (kind != "none")


def test_training_continues_when_the_terminal_is_gone(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, clock: Time
) -> None:
    monkeypatch.setattr(notices, "_shown_keys", set())
    terminal.plug_in()
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    bar, stdout = ProgressCallback(), sys.stdout
    state = begun(bar)

    def hung_up(text: str) -> int:
        raise OSError("input/output error")

    monkeypatch.setattr(terminal.stream, "write", hung_up)
    for step in range(1, 50):
        clock.now += 1
        step_to(bar, state, step)
        bar.on_log(arguments(), state, CONTROL, logs={"loss": 0.5})
    bar.on_train_end(arguments(), state, CONTROL)
    assert sys.stdout is stdout
    assert errors.getvalue().count("input/output error") == 1


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_what_an_encoding_lacks_is_escaped(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, newline="\n"))
    bar = ProgressCallback()
    bar.on_log(arguments(), TrainerState(), CONTROL, logs={"é": 1.0, "→": "\udcff \x1b[2J"})
    expected = {
        "ascii": "step 0 epoch 0.00 \\xe9 1 \\u2192 \\udcff \\x1b[2J\n",
        "cp1252": "step 0 epoch 0.00 é 1 \\u2192 \\udcff \\x1b[2J\n",
        "utf-8": "step 0 epoch 0.00 é 1 → \\udcff \\x1b[2J\n",
    }
    assert raw.getvalue().decode(encoding) == expected[encoding]


def test_a_terminal_without_colours_still_shows_how_far_it_is(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, clock: Time
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar, max_steps=4)
    clock.now += 1
    step_to(bar, state, 1)
    bar.stop()
    (line,) = [line for line in screen_of(terminal.close()) if line.startswith("train")]
    done, rest = line.count("━"), line.count("─")
    assert done == pytest.approx((done + rest) / 4, abs=1)


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (40, r"train [━╸╺]+   5%  step 5/100  0:01 left"),
        (50, r"train   5%  step 5/100  epoch 0.10/2  0:01 left"),
        (60, r"train [━╸╺]+   5%  step 5/100  epoch 0.10/2  0:01 left"),
    ],
)
def test_a_narrow_terminal_shows_what_matters_most(
    width: int, shown: str, terminal: Terminal, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar)
    bar.on_log(arguments(), state, CONTROL, logs={"loss": 0.5, "learning_rate": 1e-4, "grad_norm": 2.0})
    for step in range(1, 6):
        clock.now += 0.02
        step_to(bar, state, step)
    clock.now += 1
    bar.show_saving("checkpoint-5", 0, 0)
    bar.show_saving(None, 0, 0)
    bar.stop()
    seen = text_of(terminal.close()).splitlines()
    assert any(re.fullmatch(shown, line.split("\r")[-1].rstrip()) for line in seen)
    assert all(len(part) <= width for line in seen for part in line.split("\r"))


# ---------------------------------------------------------------------------------------------------- little and late


def test_a_log_is_written_as_it_was_when_it_came(terminal: Terminal, clock: Time) -> None:
    """Nothing is formatted before it is drawn, and whoever changes a log afterwards changes nothing."""
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar)
    logs = {"loss": 0.5}
    for step in (1, 2):
        step_to(bar, state, step)
        bar.on_log(arguments(), state, CONTROL, logs=logs)
        logs["loss"] = 99.0
    state.global_step = 77
    bar.stop()
    assert screen_of(terminal.close())[:2] == ["step   1  epoch 0.02  loss 0.5", "step   2  epoch 0.04  loss 99"]


def test_pending_lines_are_limited(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar, max_steps=5000)
    longest = 0
    for step in range(1, 5001):
        state.global_step = step
        bar.on_log(arguments(), state, CONTROL, logs={"loss": 0.5})
        assert bar._screen is not None
        longest = max(longest, len(bar._screen._pending))
    bar.stop()
    assert 500 < longest <= 1000
    assert len([line for line in screen_of(terminal.close()) if line.startswith("step")]) == 5000


def test_all_evaluations_are_shown_before_the_end(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    args = arguments(metric_for_best_model="f1")
    bar = ProgressCallback()
    state = begun(bar, args)
    for step in (1, 2):
        step_to(bar, state, step)
        evaluate(bar, state, args, eval_f1=step / 4)
        state.log_history.append({"eval_f1": step / 4, "epoch": step / 50, "step": step})
    bar.on_train_end(args, state, CONTROL)
    assert screen_of(terminal.close())[2:6] == [
        "evaluations",
        "  step  epoch  f1",
        "     1   0.02  0.25",
        "     2   0.04  0.5 ↑  best",
    ]


# ----------------------------------------------------------------------------------------------------------- the lines


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_an_evaluation_is_shown_once_whether_or_not_it_was_logged(capsys: pytest.CaptureFixture[str]) -> None:
    bar, args = ProgressCallback(), arguments()
    state = begun(bar)
    evaluate(bar, state, eval_loss=0.4)
    assert lines_of(capsys) == ["step 0 epoch 0.00 eval_loss 0.4"]
    bar.on_prediction_step(args, state, CONTROL, eval_dataloader=[1])
    bar.on_evaluate(args, state, CONTROL, metrics={"eval_loss": 0.3})
    assert lines_of(capsys) == ["step 0 epoch 0.00 eval_loss 0.3"]


@pytest.mark.parametrize(
    ("metric", "greater_is_better", "values", "best"),
    [
        ("f1", True, [0.5, 0.6, 0.6, 0.4, 0.7], [0, 1, 4]),
        ("eval_f1", False, [0.5, 0.6, 0.4], [0, 2]),
        ("f1", None, [0.5, 0.6], [0, 1]),
        ("f1", True, [float("nan"), 0.5, float("nan"), 0.6], [1, 3]),
        ("f1", True, ["high", 0.5], [1]),
        ("other", True, [0.5, 0.6], []),
        (None, None, [0.5, 0.6], []),
    ],
)
def test_the_best_evaluation_so_far_is_marked(
    metric: Any, greater_is_better: Any, values: Any, best: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    args = arguments(metric_for_best_model=metric, greater_is_better=greater_is_better)
    bar = ProgressCallback()
    state = begun(bar, args)
    for value in values:
        evaluate(bar, state, args, eval_loss=1.0, eval_f1=value)
    assert [index for index, line in enumerate(lines_of(capsys)) if line.endswith("(best)")] == best


def test_a_resumed_run_knows_its_best(capsys: pytest.CaptureFixture[str]) -> None:
    args = arguments(metric_for_best_model="loss")
    bar = ProgressCallback()
    state = begun(bar, args, best_metric=0.5)
    evaluate(bar, state, args, eval_loss=0.6)
    evaluate(bar, state, args, eval_loss=0.4)
    assert lines_of(capsys) == ["step 0 epoch 0.00 eval_loss 0.6", "step 0 epoch 0.00 eval_loss 0.4 (best)"]


def test_nothing_is_best_without_training(capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(ProgressCallback(), TrainerState(), arguments(metric_for_best_model="loss"), eval_loss=0.6)
    assert lines_of(capsys) == ["step 0 epoch 0.00 eval_loss 0.6"]


def test_other_processes_print_nothing(terminal: Terminal) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    state = begun(bar, is_world_process_zero=False)
    step_to(bar, state, 1)
    bar.on_log(arguments(), state, CONTROL, logs={"loss": 1.0})
    evaluate(bar, state, eval_loss=0.4)
    bar.on_predict(arguments(), state, CONTROL, metrics={})
    bar.on_train_end(arguments(), state, CONTROL)
    assert terminal.close() == ""


def test_a_line_reads_well_whatever_is_logged() -> None:
    state = TrainerState(global_step=50, epoch=0.53191)
    logs = {
        "n": 3,
        "ok": True,
        "x": np.float32(0.123456),
        "big": 123456.0,
        "grad_norm": 1.23456,
        "learning_rate": 4e-5,
    }
    assert format_plain_line(state, {"loss": 0.41234, **logs, "total_flos": 1.0, "step": 50}) == (
        "step 50 epoch 0.53 loss 0.4123 lr 4e-05 grad 1.23 n 3 ok True x 0.1235 big 1.235e+05"
    )
    assert format_plain_line(state, {"loss": float("nan"), "epoch": 0.000123}) == "step 50 epoch 0.00012 loss nan"
    assert format_plain_line(state, {"t": "x" * 9}, max_str_len=4) == "step 50 epoch 0.53 t xxxx... (9 characters)"


def test_empty_logs_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressCallback()
    bar.on_log(arguments(), TrainerState(), CONTROL)
    bar.on_log(arguments(), TrainerState(), CONTROL, logs={})
    PrinterCallback().on_log(None, TrainerState(), CONTROL)
    assert lines_of(capsys) == []


# ------------------------------------------------------------------------------------------------------------ behaving


def test_the_handler_delivers_to_it_and_no_random_number_is_drawn(terminal: Terminal) -> None:
    terminal.plug_in()
    args, state = arguments(), TrainerState(max_steps=2)
    handler = CallbackHandler([DefaultFlowCallback, ProgressCallback, PrinterCallback], None, None, None, None)
    assert all(isinstance(callback, QuietCallback) for callback in handler.callbacks)
    before = (random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state()))
    handler.on_train_begin(args, state, CONTROL)
    handler.on_log(args, state, CONTROL, {"loss": 1.0})
    handler.eval_dataloader = [1, 2]
    handler.on_prediction_step(args, state, CONTROL)
    handler.on_evaluate(args, state, CONTROL, {"eval_loss": 0.5})
    handler.on_save(args, state, CONTROL)
    handler.on_predict(args, state, CONTROL, {"test_loss": 0.5})
    handler.on_train_end(args, state, CONTROL)
    assert (random.getstate(), torch.get_rng_state().tolist(), str(np.random.get_state())) == before
    assert "batch 0/2" not in text_of(terminal.close())  # too short to show


LOGS = [
    {"loss": 0.98512345, "grad_norm": 1.23456, "learning_rate": 4.1e-5, "epoch": 0.53},
    {"loss": 123456.789, "total_flos": 1234.5, "n": 3, "text": "words", "flag": True, "none": None, "epoch": 1.0},
    {"nan": float("nan"), "inf": float("inf"), "zero": 0.0, "small": -0.00001234567, "one": 1.0, "list": [0.123456]},
    {"float64": np.float64(0.123456789), "float32": np.float32(0.123456789), "tensor": torch.tensor(0.123456)},
    {"train_runtime": 12.3456, "train_samples_per_second": 1e5, "total_flos": 0.0, "train_loss": 0.5, "epoch": 3.0},
    {},
]


@pytest.mark.parametrize("is_local_process_zero", [True, False])
@pytest.mark.parametrize("is_world_process_zero", [True, False])
def test_the_printer_prints_what_transformers_prints(
    is_local_process_zero: bool, is_world_process_zero: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    state = TrainerState(is_local_process_zero=is_local_process_zero, is_world_process_zero=is_world_process_zero)
    capsys.readouterr()
    printed = []
    for printer in (transformers.PrinterCallback(), PrinterCallback()):
        for logs in LOGS:
            printer.on_log(None, state, CONTROL, logs=dict(logs))
        printed.append(capsys.readouterr().out)
    assert printed[1] == printed[0]
    assert bool(printed[0]) == is_local_process_zero


def test_the_printer_leaves_the_logs_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    logs = {"loss": 0.5, "total_flos": 3.0}
    PrinterCallback().on_log(None, TrainerState(), CONTROL, logs=logs)
    assert lines_of(capsys) == ["{'loss': '0.5'}"]
    assert logs == {"loss": 0.5, "total_flos": 3.0}


def test_the_bar_has_the_signature_and_the_events_of_transformers() -> None:
    import inspect

    theirs = pytest.importorskip("transformers").ProgressCallback
    assert list(inspect.signature(ProgressCallback).parameters) == list(inspect.signature(theirs).parameters)
    assert ProgressCallback().max_str_len == theirs().max_str_len
    for event in (name for name in vars(theirs) if name.startswith("on_")):
        assert event in vars(ProgressCallback)


# ------------------------------------------------------------------------------------------------ a run in words


def test_loader_bound(clock: Time, capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressCallback()
    bar.watch(progress.ObservedRun("h", "out", lambda: {"computing": 10.0, "data": 30.0}, lambda: None, 0, 8))
    state = TrainerState(global_step=5, max_steps=9, is_world_process_zero=True)
    args = SimpleNamespace(metric_for_best_model=None, greater_is_better=None)
    for _ in range(2):
        bar.on_log(args, state, TrainerControl(), logs={"loss": 1.0})
    said = capsys.readouterr().err
    assert said.count("loader-bound: 75 % of training is spent waiting for data; try dataloader_num_workers=4") == 1


def test_the_share_of_time_is_under_the_bar(terminal: Terminal, clock: Time) -> None:
    terminal.plug_in()
    bar = ProgressCallback()
    seconds = {"computing": 6.0, "data": 3.0, "evaluation": 1.0, "saving": 0.0}
    bar.watch(progress.ObservedRun("what is trained", "out", lambda: seconds, lambda: 2.5, 0, 8))
    state = TrainerState(global_step=0, max_steps=9, is_world_process_zero=True, num_train_epochs=1)
    args = SimpleNamespace(
        metric_for_best_model=None, greater_is_better=None, train_batch_size=2, world_size=1, data_size=1,
        gradient_accumulation_steps=1,
    )  # fmt: skip
    bar.on_train_begin(args, state, TrainerControl())
    state.global_step, state.epoch = 1, 0.1
    bar.on_step_end(args, state, TrainerControl())
    bar.on_train_end(args, state, TrainerControl())
    written = screen_of(terminal.close())
    assert written[0] == "what is trained"
    assert "compute 60%  data 30%  eval 10%" in written[2]
    assert "first loss 2.5" in written[2]
    assert written[3].startswith("stopped after 1 of 9 steps")


@pytest.mark.parametrize("looks", ["evaluate", "predict"])
def test_an_evaluation_that_fails_gives_the_terminal_back(tmp_path: Path, looks: str, terminal: Terminal) -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = nn.Linear(1, 1), 0

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            self.calls += 1
            if self.calls == 2:
                raise RuntimeError("no")
            return {"loss": (self.layer(x).squeeze(-1) - labels).square().mean()}

    args = ostinato.TrainingArguments(str(tmp_path), per_device_eval_batch_size=1, use_cpu=True, report_to="none")
    rows = [{"x": torch.ones(1), "labels": torch.tensor(1.0)}] * 3
    trainer = ostinato.Trainer(Fails(), args, eval_dataset=rows)
    terminal.plug_in()
    with pytest.raises(RuntimeError):
        getattr(trainer, looks)(rows)
    assert sys.stdout is terminal.stream
    assert "batch" in terminal.close()
