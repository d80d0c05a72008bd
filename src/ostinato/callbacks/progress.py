"""How far the run is: one live bar on a terminal, plain lines in a pipe or a file.

training Bert on cpu in float32: 4.4 M parameters, 9,000 rows, 1,125 steps of 24 rows
step  500  epoch 1.33  loss 0.3127  lr 2.8e-05  grad 1.9
step  500  epoch 1.33  eval  loss 0.2914  accuracy 0.8912 best  1.6 s
train ━━━━━━━━━━━━━━━━━━━━━━━━━━╺━━━━━━━━━━━━━━  67%  step 750/1125  epoch 2.00/3  0:51 left
      loss 0.2514  lr 1.7e-05  grad 1.2  412 samples/s  compute 91%  data 6%  eval 3%
done in 2:31: best accuracy 0.8934 at step 1000; results in out
"""

from __future__ import annotations

import atexit
import math
import sys
import time
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

from ..core.notices import note_once
from ..core.state import TrainerControl, TrainerState
from .base import QuietCallback
from .printer import SHORT_NAMES, PrinterCallback, epoch_text, plain_line, say, shown, value_text
from .spoken import Watched, advice, closing, shown_shares

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

__all__ = ["PrinterCallback", "ProgressCallback"]

SECONDS_BETWEEN_REFRESHES = 0.25
SECONDS_BETWEEN_LINES = 0.1  # a line should not wait long: what the user prints would overtake it
# Drawing takes some milliseconds. It waits until it has not taken more than this share of the time.
SHARE_FOR_DRAWING, LONGEST_WAIT = 0.005, 1.0
# Loaders over endless data are planned with a number of epochs that only means "many".
MANY_EPOCHS = 10**6
# A log whose names all begin like this is about one thing: `eval  loss 0.29  accuracy 0.89`.
SUBJECTS = ("eval", "train", "test", "predict")
SPEEDS = ("runtime", "samples_per_second", "steps_per_second")
COLUMN_WIDTHS = {"loss": 6, "learning_rate": 8, "grad_norm": 4}  # what most runs need

BLUE, GREEN, QUIET = "#5b7cfa", "green", "dim"


class ProgressCallback(QuietCallback):
    """Shows steps, loss, rate, speed and time left, and a line for every log and every evaluation.

    `max_str_len` cuts texts that somebody logs. Call `stop` when training ends without `on_train_end`.

    >>> trainer.add_callback(ProgressCallback(max_str_len=40))  # doctest: +SKIP
    """

    def __init__(self, max_str_len: int = 100) -> None:
        self.max_str_len = max_str_len
        self._screen: _Screen | None = None  # open while there is something live on a terminal
        self._training = False
        self._best: float | None = None
        self._batches = 0  # of the evaluation under way
        self._loader: Any = None
        self._logged: set[str] = set()
        self._watched: Watched | None = None
        self._begun = 0.0

    def watch(self, run: Watched) -> None:
        """Look at this run from its beginning to its end."""
        self._watched = run

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        watched = self._watched
        self.stop()
        if not state.is_world_process_zero:
            return
        self._watched = watched
        self._training, self._begun = True, time.monotonic()
        self._screen = _open_screen(self.max_str_len)
        if self._watched is not None:
            self._say(self._watched.header)
        if self._screen is not None:
            atexit.register(self.stop)  # an exception may end everything, and the shell wants its line back
            samples = args.train_batch_size * args.world_size * args.gradient_accumulation_steps
            self._screen.begin_training(state, samples_per_step=samples, watched=self._watched)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step == 1 and self._training and not control.should_log:
            self._show_first_loss(args, state)
        if self._screen is not None:
            self._screen.step(state)

    def on_prediction_step(
        self, args: Any, state: TrainerState, control: TrainerControl, eval_dataloader: Any = None, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        if self._batches == 0 or eval_dataloader is not self._loader:  # another loader: the last one was interrupted
            self._begin_evaluation(eval_dataloader)
        self._batches += 1
        if self._screen is not None:
            self._screen.batch(self._batches)

    def on_evaluate(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        # `Trainer.evaluate` logs its metrics first; show them again only if somebody's own `evaluate` does not.
        if metrics and not set(shown(metrics)) <= self._logged:
            self._report(args, state, metrics)
        self._end_evaluation()

    def on_predict(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            self._end_evaluation()

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._screen is not None:
            self._screen.clock.rested()

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero and logs:
            self._logged = set(logs)
            self._report(args, state, logs)
            self._advise()

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._screen is not None:
            self._screen.finish(state)
        watched, ended = self._watched, state.is_world_process_zero and self._training
        self.stop()
        if watched is not None and ended:
            say(closing(args, state, duration_text(time.monotonic() - self._begun), watched.results))

    def stop(self) -> None:
        """Give the terminal back, whatever happened; safe to call at any time, any number of times."""
        screen, self._screen = self._screen, None
        self._training, self._best = False, None
        self._batches, self._loader, self._logged = 0, None, set()
        self._watched = None
        if screen is not None:
            atexit.unregister(self.stop)
            screen.close()

    def show_skipping(self, done: int | None, total: int, unit: str) -> bool:
        """How far a run is that comes back to where it stood; None when it is there. Whether it can be seen."""
        if self._screen is not None:
            self._screen.skip(None if done is None else (done, total, unit))
        return self._screen is not None

    def show_saving(self, name: str | None, done: int, total: int) -> None:
        """Training stands still until this is written, of which so many bytes are; None when it is over."""
        if self._screen is not None:
            self._screen.save(None if name is None else (name, done, total))

    # ---- a run in words ----------------------------------------------------------------

    def _say(self, line: str) -> None:
        if self._screen is None:
            say(line)
        else:
            self._screen.say(line)

    def _show_first_loss(self, args: Any, state: TrainerState) -> None:
        """Hundreds of steps may pass until the first log, and whoever waits wants to know that it works."""
        loss = None if self._watched is None else self._watched.first_loss()
        if loss is not None and self._screen is not None:
            self._screen.show_loss(loss)
        elif loss is not None:
            say(plain_line(state, {"loss": loss}, max_str_len=self.max_str_len))

    def _advise(self) -> None:
        watched = self._watched
        if watched is not None and (line := advice(watched.seconds(), watched.workers, watched.cores)):
            note_once(line, key="loader-bound")

    # ---- one evaluation ------------------------------------------------------------------------

    def _begin_evaluation(self, loader: Any) -> None:
        self._batches, self._loader = 0, loader
        if self._screen is None and not self._training:
            self._screen = _open_screen(self.max_str_len)
            if self._screen is not None:
                atexit.register(self.stop)
        if self._screen is not None:
            self._screen.begin_evaluation(length_of(loader))

    def _end_evaluation(self) -> None:
        self._batches, self._loader, self._logged = 0, None, set()
        if not self._training:
            self.stop()
        elif self._screen is not None:
            self._screen.end_evaluation()

    # ---- lines ---------------------------------------------------------------------------------

    def _report(self, args: Any, state: TrainerState, logs: Mapping[str, Any]) -> None:
        best = self._new_best(args, state, logs) if self._training else None
        screen = self._screen or (None if self._training else _open_screen(self.max_str_len))
        if screen is None:
            say(plain_line(state, logs, best=best, max_str_len=self.max_str_len))
        else:
            screen.log(state, logs, best=best)

    def _new_best(self, args: Any, state: TrainerState, logs: Mapping[str, Any]) -> str | None:
        """The metric that decides about the best model, if it is in these logs and has improved.

        `state.best_metric` is of no help alone: it is brought up to date after the evaluation has been shown.
        """
        if not args.metric_for_best_model:
            return None
        name = args.metric_for_best_model
        name = name if name.startswith("eval_") else f"eval_{name}"
        value = logs.get(name)
        if not isinstance(value, Real) or math.isnan(value):
            return None
        number, greater = float(value), args.greater_is_better
        if greater is None:
            greater = not name.endswith("loss")
        rivals = [best for best in (state.best_metric, self._best) if best is not None]
        if not all(number > best if greater else number < best for best in rivals):
            return None
        self._best = number
        return name


class Clock:
    """Tells training from resting: everything between two marks was the one or the other."""

    def __init__(self) -> None:
        self.begun = self.mark = time.monotonic()
        self.rest = 0.0
        self.first: tuple[int, float, float] | None = None
        self.step = 0

    def stepped(self, step: int) -> float:
        """A step has ended: the time since the last mark was training. The first step warms up, and is not counted."""
        self.mark, self.step = time.monotonic(), step
        if self.first is None:
            self.first = (step, self.mark, self.rest)
        return self.mark

    def trained(self) -> None:
        """Whatever came after the step (reading the loss waits for the device) belongs to it."""
        self.mark = time.monotonic()

    def rested(self) -> None:
        """The time since the last mark went into an evaluation or a save."""
        now = time.monotonic()
        self.rest += now - self.mark
        self.mark = now

    def steps_per_second(self) -> float | None:
        """Of training time alone; None until it can be told."""
        if self.first is None or self.step <= self.first[0]:
            return None
        step, mark, rest = self.first
        return (self.step - step) / max(self.mark - mark - (self.rest - rest), 1e-9)

    def seconds_left(self, num_steps: int) -> float | None:
        """For so many steps, with as much evaluating and saving between them as so far."""
        if self.first is None or self.step <= self.first[0]:
            return None
        step, mark, _ = self.first
        return num_steps * (self.mark - mark) / (self.step - step)


class _Screen:
    """The live part of a terminal and the lines above it. Draws when told to, and never from a thread."""

    def __init__(self, console: Console, max_str_len: int) -> None:
        self.console = console
        self.max_str_len = max_str_len
        self.clock = Clock()
        self._live: Live | None = None
        self._drawn_at = self._due_at = self._rested_at = float("-inf")
        self._waiting: list[list[tuple[str, str]]] = []  # lines that came too fast to be drawn one by one
        self._widths: dict[str, int] = {}  # of the widest value so far, by name: lines stay in columns
        self._state: TrainerState | None = None  # None: an evaluation without training
        self._samples_per_step = 0
        self._numbers: dict[str, Any] = {}
        self._batches: tuple[int, int | None] | None = None
        self._skipped: tuple[int, int, str] | None = None
        self._skipping_since = 0.0
        self._saved: tuple[str, int, int] | None = None
        self._outcome: str | None = None
        self._watched: Watched | None = None
        self._tokens_per_second: float | None = None
        self._utilization: float | None = None
        self._measured: dict[str, float] = {}  # by the evaluation before

    def begin_training(self, state: TrainerState, *, samples_per_step: int, watched: Watched | None = None) -> None:
        self._state, self._samples_per_step, self._watched = state, samples_per_step, watched
        self.draw()

    def say(self, line: str) -> None:
        """A line of words above the bar."""
        self._waiting.append([(line, "")])
        self._draw_if_due()

    def show_loss(self, loss: float) -> None:
        """A loss that is known before it is logged."""
        self._numbers.setdefault("loss", loss)
        self.draw()

    def step(self, state: TrainerState) -> None:
        """Called after every step: a look at the clock, unless it is time to draw."""
        self._state = state
        if self.clock.stepped(state.global_step) >= self._due_at:
            self.draw()

    def skip(self, skipped: tuple[int, int, str] | None) -> None:
        """Rows or batches are read and dropped: how many of how many; None when it is over."""
        if self._skipped is None:
            self._skipping_since = self.clock.mark
        self._skipped = skipped
        if skipped is None:
            self.clock.rested()
        self.draw()

    def save(self, saved: tuple[str, int, int] | None) -> None:
        """Something is being written while training waits: its name, how many of how many bytes; None: it is over."""
        is_news = (saved is None) != (self._saved is None)
        self._saved = saved
        if is_news:
            self.draw()
        else:
            self._draw_if_due()

    def begin_evaluation(self, num_batches: int | None) -> None:
        self._batches = (0, num_batches)
        self._draw_if_due()  # a very short evaluation during training need not show

    def batch(self, done: int) -> None:
        if self._batches is not None:
            self._batches = (done, self._batches[1])
        self._draw_if_due()

    def end_evaluation(self) -> None:
        self._batches = None
        self.clock.rested()
        self.draw()

    def log(self, state: TrainerState, logs: Mapping[str, Any], *, best: str | None) -> None:
        """A line above the bar, and the newest numbers below it."""
        self._waiting.append(self._line(state, logs, best))
        is_first = self._state is None or ("loss" in logs and "loss" not in self._numbers)
        if self._batches is None:
            self.clock.trained()
            self._tokens_per_second = logs.get("train_tokens_per_second", self._tokens_per_second)
            self._utilization = logs.get("train_mfu", self._utilization)
            self._numbers.update({name: logs[name] for name in ("loss", "learning_rate", "grad_norm") if name in logs})
        self._due_at = self._drawn_at if is_first else max(self._drawn_at + SECONDS_BETWEEN_LINES, self._rested_at)
        self._draw_if_due()

    def finish(self, state: TrainerState) -> None:
        """Training has come to its end, and was not cut off."""
        self._state, self._outcome = state, f"in {duration_text(time.monotonic() - self.clock.begun)}"

    def close(self) -> None:
        """Leave the training bar as it is, take the evaluation's away, and let go of the terminal."""
        if self._state is not None and self._outcome is None:
            self._outcome = f"interrupted after {duration_text(self.clock.mark - self.clock.begun)}"
        if self._state is not None:
            self._batches = None
        self._saved = None
        self.draw()
        live, self._live = self._live, None
        if live is not None:
            live.transient = self._state is None
            live.stop()

    # ---- drawing -------------------------------------------------------------------------------

    def _draw_if_due(self) -> None:
        if time.monotonic() >= self._due_at:
            self.draw()

    def draw(self) -> None:
        """Print the lines that wait, and the bars as they are now."""
        begun, lines, self._waiting = time.monotonic(), self._waiting, []
        if self._state is not None or self._batches is not None:
            self._start()
        if lines:  # printing draws the live part anew as well
            self.console.print(_Lines(lines), end="", crop=False)
        elif self._live is not None:
            self._live.refresh()
        self._drawn_at = time.monotonic()
        self._rested_at = self._drawn_at + min((self._drawn_at - begun) / SHARE_FOR_DRAWING, LONGEST_WAIT)
        self._due_at = max(self._drawn_at + SECONDS_BETWEEN_REFRESHES, self._rested_at)

    def _start(self) -> None:
        from rich.live import Live  # noqa: PLC0415

        if self._live is not None:
            return
        self._live = live = Live(
            self,  # whoever prints, rich or the user, draws what `__rich__` says at that moment
            console=self.console,
            auto_refresh=False,  # a refresh thread would outlive an exception
            redirect_stderr=sys.stderr is not None and sys.stderr.isatty(),  # else it goes to a file, and should
            vertical_overflow="crop",
        )
        live.start()
        self.console.show_cursor(True)  # hidden by rich; a killed run could not show it again

    def __rich__(self) -> RenderableType:
        """What is live: the training and its newest numbers, and the evaluation under way."""
        from rich.console import Group  # noqa: PLC0415

        rows: list[RenderableType] = []
        width = 0
        if self._state is not None:
            total = self._state.max_steps if self._state.max_steps > 0 else None
            text = _count("step", self._state.global_step, total, self._position(self._state))
            width = text.cell_len
            rows += [_row("train", self._state.global_step, total, text), self._newest()]
        if self._skipped is not None:
            done, total, unit = self._skipped
            left = (time.monotonic() - self._skipping_since) / max(done, 1) * (total - done)
            text = _count(unit, done, total, [("", f"{duration_text(left)} left")])
            text.pad_right(width - text.cell_len)
            rows.append(_row("skip", done, total, text))
        if self._batches is not None:
            text = _count("batch", *self._batches, [])
            text.pad_right(width - text.cell_len)  # one bar under the other
            rows.append(_row("eval", *self._batches, text))
        if self._saved is not None:
            name, done, total = self._saved
            share = [("", f"{100 * done // total:3d}%"), ("", size_text(done, total))] if total else []
            text = _pairs([*share, ("", name)])
            text.pad_right(width - text.cell_len)
            rows.append(_row("save", done, total or None, text))
        return Group(*rows)

    def _position(self, state: TrainerState) -> list[tuple[str, str]]:
        epochs = f"/{state.num_train_epochs}" if 0 < state.num_train_epochs < MANY_EPOCHS else ""
        left = self._outcome
        if left is None and state.max_steps > 0:
            left = f"{duration_text(self.clock.seconds_left(max(state.max_steps - state.global_step, 0)))} left"
        return [("epoch", f"{epoch_text(state.epoch)}{epochs}"), ("", left or "")]

    def _newest(self) -> Text:
        """The numbers under the bar."""
        pairs = [(SHORT_NAMES.get(name, name), self._text(name, value)) for name, value in self._numbers.items()]
        speed = self.clock.steps_per_second()
        if speed is not None:
            pairs.append(("", f"{rate_text(speed * self._samples_per_step)} samples/s"))
        if self._tokens_per_second is not None:
            pairs.append(("", f"{rate_text(self._tokens_per_second)} tokens/s"))
        if self._utilization is not None:
            pairs.append(("MFU", f"{self._utilization:.0%}"))
        if self._watched is not None:
            pairs += shown_shares(self._watched.seconds())
        text = _pairs(pairs)
        text.pad_left(6)
        text.no_wrap, text.overflow = True, "crop"
        return text

    # ---- lines ---------------------------------------------------------------------------------

    def _line(self, state: TrainerState, logs: Mapping[str, Any], best: str | None) -> list[tuple[str, str]]:
        """A log in columns: what is known by its place needs no long name."""
        step = str(state.global_step).rjust(len(str(state.max_steps)))
        epoch = epoch_text(logs.get("epoch", state.epoch))
        line = [("step ", QUIET), (f"{step}  ", ""), ("epoch ", QUIET), (epoch, "")]
        numbers = shown(logs)
        subject = next((s for s in SUBJECTS if all(name.startswith(f"{s}_") for name in numbers)), None)
        if subject is not None and numbers:
            line.append((f"  {subject}", f"bold {BLUE}"))
        for name in sorted(numbers, key=lambda name: name.endswith(SPEEDS)):  # speeds last
            short = name if subject is None else name.removeprefix(f"{subject}_")
            label, text = self._in_words(subject, short, numbers[name])
            if text:
                line.append((f"  {label} " if label else "  ", QUIET))
                line.append((self._in_column(subject, short, text), ""))
                line.append((self._change(name, numbers[name]) if subject == "eval" else "", QUIET))
            if name == best:
                line.append((" best", f"bold {GREEN}"))
        return line

    def _change(self, name: str, value: Any) -> str:
        """Whether a metric is more or less than the last time."""
        if name.endswith(SPEEDS) or not isinstance(value, Real) or math.isnan(value):
            return ""
        now, before = float(value), self._measured.get(name)
        self._measured[name] = now
        if before is None or before == now:
            return ""
        up, down = ("+", "-") if self.console.options.ascii_only else ("↑", "↓")
        return f" {up if now > before else down}"

    def _in_words(self, subject: str | None, name: str, value: Any) -> tuple[str, str]:
        """The name and the value as they should read; an empty value is left out."""
        if subject is None or name not in SPEEDS or not isinstance(value, Real):
            return SHORT_NAMES.get(name, name), self._text(name, value)
        if name == "runtime":
            return "", f"{float(value):,.1f} s"
        # Of an evaluation the seconds are enough: 80 columns are better spent on its metrics.
        is_news = subject == "train" and name == "samples_per_second"
        return "", f"{rate_text(float(value))} samples/s" if is_news else ""

    def _in_column(self, subject: str | None, name: str, text: str) -> str:
        key = f"{subject} {name}"
        self._widths[key] = max(self._widths.get(key, COLUMN_WIDTHS.get(name, 0)), len(text))
        return text.ljust(self._widths[key])

    def _text(self, name: str, value: Any) -> str:
        return value_text(name, value, self.max_str_len)


class _Lines:
    """Lines of texts with styles; one that is too long is broken before a text that begins with two blanks.

    Rich would look at every character for places to break lines at, which takes as long as all the rest.
    """

    def __init__(self, lines: list[list[tuple[str, str]]]) -> None:
        self.lines = lines

    def __rich_console__(self, console: Console, options: Any) -> Iterator[Any]:
        from rich.segment import Segment  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        for line in self.lines:
            whole = "".join([text for text, _ in line])
            if len(line) == 1 or not whole.isprintable():  # words, or what a terminal would take for commands
                yield Text.assemble(*line)
                continue
            used = 0
            for place, (text, style) in enumerate(line):
                if text.startswith("  "):  # a name, whose value follows
                    width = len(text) + len(line[place + 1][0].rstrip() if place + 1 < len(line) else "")
                    if used + width > options.max_width:
                        yield Segment.line()
                        yield Segment(" " * 4)
                        used = 4
                used += len(text)
                yield Segment(text, console.get_style(style) if style else None)
            yield Segment.line()


def _open_screen(max_str_len: int) -> _Screen | None:
    """Standard output, if it is a terminal that can move its cursor."""
    if sys.stdout is None or not sys.stdout.isatty():  # FORCE_COLOR may not turn a file into a terminal
        return None
    from rich.console import Console  # noqa: PLC0415

    console = Console()
    return _Screen(console, max_str_len) if console.is_terminal and not console.is_dumb_terminal else None


def length_of(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError, AttributeError):  # a stream
        return None


def _row(name: str, done: int, total: int | None, text: Text) -> RenderableType:
    """A name, a bar that takes what room there is, and a text."""
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True, overflow="crop", style=f"bold {BLUE}")
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, overflow="crop")
    bar = ProgressBar(
        total=total,
        completed=done,
        style="grey50",  # seen on black and on white
        complete_style=BLUE,
        finished_style=GREEN,
        pulse_style=BLUE,
    )
    grid.add_row(name.ljust(len("train")), bar, text)
    return grid


def _count(unit: str, done: int, total: int | None, more: list[tuple[str, str]]) -> Text:
    """The share, where there is a whole, and the count."""
    if total is None:
        return _pairs([(unit, str(done)), *more])
    share = min(100 * done // total, 100) if total else 100
    return _pairs([("", f"{share:3d}%"), (unit, f"{done}/{total}"), *more])


def _pairs(pairs: list[tuple[str, str]]) -> Text:
    """Quiet names, plain values."""
    from rich.text import Text  # noqa: PLC0415

    parts = [Text.assemble((f"{name} " if name else "", QUIET), value) for name, value in pairs if value]
    return Text("  ").join(parts)


def rate_text(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def size_text(done: int, total: int) -> str:
    """0.41/1.20 GB, 24/80 MB."""
    return f"{done / 1e9:.2f}/{total / 1e9:.2f} GB" if total >= 1e9 else f"{done / 1e6:.0f}/{total / 1e6:.0f} MB"


def duration_text(seconds: float | None) -> str:
    """1:05, 2:01:05, 3 d 2:01:05."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    short = f"{hours}:{minutes:02d}:{rest:02d}" if hours or days else f"{minutes}:{rest:02d}"
    return f"{days} d {short}" if days else short
