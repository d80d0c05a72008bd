"""The live part of a terminal, and the lines above it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.state import TrainerState
from .format import Columns, Line, Noted, broken
from .messages import Watched, introduced, shown_shares
from .plain import SHORT_NAMES, epoch_text, nobody_listens, on_one_line, value_text, writable
from .speed import Clock, duration_text, rate_text, size_text
from .stdout_proxy import Above, Redirected

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.live import Live
    from rich.segment import Segment
    from rich.text import Text

SECONDS_BETWEEN_REFRESHES = 0.25
SECONDS_BETWEEN_LINES = 0.1  # a line should not wait long: what the user prints would overtake it
# Drawing takes time. It waits until it has not taken more than this share of the time, but not forever.
SHARE_FOR_DRAWING, LONGEST_WAIT = 0.002, 1.0
LINES_WAITING = 1000  # are drawn, whatever the time
# Loaders over endless data are planned with a number of epochs that only means "many".
MANY_EPOCHS = 10**6
WIDEST_NAME, SMALLEST_BAR = len("train "), 4
SHOWN_BELOW = ("loss", "learning_rate", "grad_norm")
NEWEST = (*SHOWN_BELOW, "train_tokens_per_second", "train_mfu")
# Done, half done, the beginning of the rest, the rest.
BARS = {"colour": "━╸╺━", "plain": "━╸ ─", "ascii": "==--"}

BLUE, GREEN, GREY = "#5b7cfa", "green", "grey50"  # seen on black and on white
STYLES = {
    "": "",
    "quiet": "dim",
    "subject": f"bold {BLUE}",
    "best": f"bold {GREEN}",
    "done": BLUE,
    "whole": GREEN,
    "rest": GREY,
}


def open_screen(max_str_len: int) -> Screen | None:
    """Standard output, if it is a terminal that can move its cursor."""
    stream = sys.stdout
    if isinstance(stream, Above) or not is_terminal(stream):  # FORCE_COLOR may not turn a file into a terminal
        return None  # a training inside of a training has no bar of its own
    from rich.console import Console  # noqa: PLC0415

    # This stream, also while somebody puts another in its place; and nothing in a text means anything.
    console = Console(file=stream, markup=False, emoji=False, highlight=False)
    return Screen(console, max_str_len) if console.is_terminal and not console.is_dumb_terminal else None


class Screen:
    """Draws when told to, and has no thread of its own."""

    def __init__(self, console: Console, max_str_len: int) -> None:
        self.console = console
        self.max_str_len = max_str_len
        self.is_ascii = console.options.ascii_only
        self._has_colour = console.color_system is not None and not console.no_color
        self.clock = Clock()
        self.columns = Columns(max_str_len, self.is_ascii)
        self._live: Live | None = None
        self._redirected: Redirected | None = None
        self._lock, self._is_drawing, self._is_gone = threading.RLock(), False, False
        self._drawn_at = self._due_at = self._rested_at = float("-inf")
        self._waiting: list[Noted | Words | Printed | Line] = []
        self._introduction: str | None = None  # live until it can tell how long the run will take
        self._state: TrainerState | None = None  # None: an evaluation without training
        self._samples_per_step = 0
        self._numbers: dict[str, Any] = {}
        self._first_loss: float | None = None
        self._batches: tuple[int, int | None] | None = None
        self._skipped: tuple[int, int, str] | None = None
        self._skipping_since = 0.0
        self._saved: tuple[str, int, int] | None = None
        self._outcome: str | None = None
        self._watched: Watched | None = None
        self._styles = {name: console.get_style(style) for name, style in STYLES.items() if style}
        self._codes = {name: _codes(console, style) for name, style in STYLES.items()}

    def begin_training(self, state: TrainerState, *, samples_per_step: int, watched: Watched | None = None) -> None:
        self._state, self._samples_per_step, self._watched = state, samples_per_step, watched
        self.columns.recall(state.log_history)
        self.draw()

    def introduce(self, line: str) -> None:
        """What is going to be trained. It stands above the bar, and how long it takes is added when that is known."""
        self._introduction = line

    def say(self, line: str) -> None:
        """A line of words above the bar."""
        self._waiting.append(Words(line))
        self._draw_if_due()

    def print(self, text: str) -> None:
        """What somebody else prints, perhaps from another thread, comes after all that was logged before."""
        with self._lock:
            self._waiting.append(Printed(text))
            if not self._is_drawing:
                self.draw()

    def show_loss(self, loss: float) -> None:
        """A loss that is known before any is logged."""
        self._first_loss = loss
        self.draw()

    def step(self, state: TrainerState) -> None:
        """Called after every step: a look at the clock, unless it is time to draw."""
        clock = self.clock
        if clock.first is None:
            clock.stepped(state.global_step)
        clock.mark, clock.step = time.monotonic(), state.global_step  # as `stepped` does: a call less
        if clock.mark >= self._due_at:
            self._state = state
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
        """A line above the bar, and the newest numbers below it. They are written when it is time to draw."""
        epoch = logs.get("epoch", state.epoch)
        with self._lock:
            self._waiting.append(Noted(state.global_step, state.max_steps, epoch, dict(logs), best))
        if self._batches is None:
            now = self.clock.trained()
            is_first = self._state is None or ("loss" in logs and "loss" not in self._numbers)
        else:
            now, is_first = time.monotonic(), False
        due_at = self._drawn_at if is_first else max(self._drawn_at + SECONDS_BETWEEN_LINES, self._rested_at)
        self._due_at = min(due_at, self._due_at)
        if now >= self._due_at or len(self._waiting) >= LINES_WAITING:
            self.draw()

    def finish(self, state: TrainerState, duration: str, lines: list[Line]) -> None:
        """Training has come to its end, and was not cut off."""
        self._state = state
        self._outcome = f"stopped after {duration}" if state.global_step < state.max_steps else f"in {duration}"
        self._waiting += lines

    def close(self) -> None:
        """Leave the training bar as it is, take the evaluation's away, and let go of the terminal."""
        if self._state is not None and self._outcome is None:
            self._outcome = f"interrupted after {duration_text(self.clock.mark - self.clock.begun)}"
        if self._state is not None:
            self._batches = None
        self._saved = self._skipped = None
        self.draw()
        live, self._live = self._live, None
        if live is not None and self._redirected is not None:
            live.transient = self._state is None
            try:
                live.stop()
            except (OSError, ValueError) as error:
                nobody_listens(error, self.console.file)
            self._redirected.end()

    # ---- drawing -------------------------------------------------------------------------------

    def _draw_if_due(self) -> None:
        if time.monotonic() >= self._due_at:
            self.draw()

    def draw(self) -> None:
        """Print the lines that wait, and the bars as they are now."""
        begun = time.monotonic()
        with self._lock:
            waiting, self._waiting, self._is_drawing = self._waiting, [], True
            try:
                self._write(waiting)
            except (OSError, ValueError) as error:
                self._is_gone = True
                nobody_listens(error, self.console.file)
            finally:
                self._is_drawing = False
        self._drawn_at = now = time.monotonic()
        self._rested_at = now + min((now - begun) / SHARE_FOR_DRAWING, LONGEST_WAIT)
        self._due_at = max(now + SECONDS_BETWEEN_REFRESHES, self._rested_at)

    def _write(self, waiting: list[Noted | Words | Printed | Line]) -> None:
        if self._is_gone:
            return
        if self._introduction is not None:
            seconds = self._seconds_in_all()
            if waiting or seconds is not None or self._outcome is not None:
                waiting = [Words(introduced(self._introduction, seconds)), *waiting]
                self._introduction = None
        for one in waiting:
            if isinstance(one, Noted):
                self._numbers.update({name: one.logs[name] for name in NEWEST if name in one.logs})
        if self._state is not None or self._batches is not None:
            self._start()
        if waiting:  # printing draws the live part anew as well
            self.console.print(_Waiting(self, waiting), end="", crop=False)
        elif self._live is not None:
            self._live.refresh()

    def _seconds_in_all(self) -> float | None:
        """For the whole run; None until it can be told, and when it is over."""
        state, clock = self._state, self.clock
        if state is None or state.max_steps <= 0 or self._outcome is not None:
            return None
        left = clock.seconds_left(max(state.max_steps - state.global_step, 0))
        return None if left is None else clock.mark - clock.begun + left

    def _start(self) -> None:
        from rich.live import Live  # noqa: PLC0415

        if self._live is not None:
            return
        self._live = live = Live(
            self,  # whoever prints, rich or the user, draws what is there at that moment
            console=self.console,
            auto_refresh=False,  # a refresh thread would outlive an exception
            redirect_stdout=False,  # done below: what was printed first should be seen first
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        live.start()
        self._redirected = Redirected(self.print, error=is_terminal(sys.stderr))  # else it goes to a file, and should
        self.console.show_cursor(True)  # hidden by rich; a killed run could not show it again

    def styled(self, line: Line) -> str:
        """A line with the codes of this terminal."""
        codes = self._codes
        return "".join([codes[style] % text if style else text for text, style in line if text])

    # ---- what is live --------------------------------------------------------------------------

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """The training and its newest numbers, and what it waits for. Rich's own tables take ten times as long."""
        from rich.segment import Segment  # noqa: PLC0415

        for number, row in enumerate(self._rows(options.max_width)):
            if number:
                yield Segment.line()
            for text, style in row:
                yield Segment(text, self._styles.get(style))

    def _rows(self, width: int) -> Iterator[Line]:
        if self._introduction is not None:
            yield [(writable(on_one_line(self._introduction), self.console.encoding), "")]  # rich cuts it off
        aligned = 0  # one bar under the other
        if self._state is not None:
            state, total = self._state, self._state.max_steps if self._state.max_steps > 0 else None
            pairs = _count("step", state.global_step, total) + self._position(state)
            pairs = _fitting(pairs, width - WIDEST_NAME)
            aligned = _width(pairs)
            yield self._row("train", state.global_step, total, pairs, width)
            yield self._newest(width)
        if self._skipped is not None:
            done, total, unit = self._skipped
            left = (time.monotonic() - self._skipping_since) / max(done, 1) * (total - done)
            pairs = [*_count(unit, done, total), ("", f"{duration_text(left)} left")]
            yield self._row("skip", done, total, pairs, width, aligned)
        if self._batches is not None:
            yield self._row("eval", *self._batches, _count("batch", *self._batches), width, aligned)
        if self._saved is not None:
            name, done, total = self._saved
            share = [("", f"{100 * done // total:3d}%"), ("", size_text(done, total))] if total else []
            yield self._row("save", done, total or None, [*share, ("", name)], width, aligned)

    def _position(self, state: TrainerState) -> list[tuple[str, str]]:
        epochs = f"/{state.num_train_epochs}" if 0 < state.num_train_epochs < MANY_EPOCHS else ""
        left = self._outcome
        if left is None and state.max_steps > 0:
            left = f"{duration_text(self.clock.seconds_left(max(state.max_steps - state.global_step, 0)))} left"
        return [("epoch", f"{epoch_text(state.epoch)}{epochs}"), *([("", left)] if left else [])]

    def _newest(self, width: int) -> Line:
        """The numbers under the bar, as far as there is room for them."""
        numbers, first = self._numbers, self._first_loss
        pairs = [] if first is None or "loss" in numbers else [("first loss", value_text("loss", first, 20))]
        pairs += [
            (SHORT_NAMES.get(name, name), value_text(name, numbers[name], self.max_str_len))
            for name in SHOWN_BELOW
            if name in numbers
        ]
        speed = self.clock.steps_per_second()
        if speed is not None:
            pairs.append(("", f"{rate_text(speed * self._samples_per_step)} samples/s"))
        if "train_tokens_per_second" in numbers:
            pairs.append(("", f"{rate_text(numbers['train_tokens_per_second'])} tokens/s"))
        if "train_mfu" in numbers:
            pairs.append(("MFU", f"{numbers['train_mfu']:.0%}"))
        if self._watched is not None:
            pairs += shown_shares(self._watched.seconds())
        while pairs and _width(pairs) > width - WIDEST_NAME:
            pairs.pop()
        return [(" " * WIDEST_NAME, ""), *_pieces(pairs)]

    def _row(
        self, name: str, done: int, total: int | None, pairs: list[tuple[str, str]], width: int, aligned: int = 0
    ) -> Line:
        """A name, a bar that takes what room there is, and what it says."""
        said = _width(pairs)
        room = width - WIDEST_NAME - max(said, aligned) - 1
        bar = [*self._bar(done, total, room), (" ", "")] if room >= SMALLEST_BAR else []
        return [(name.ljust(WIDEST_NAME), "subject"), *bar, *_pieces(pairs), (" " * (aligned - said), "")]

    def _bar(self, done: int, total: int | None, width: int) -> Line:
        """A line, of which as much is bright as is done. Without colours it is drawn, and the rest is faint."""
        full, half, begin, rest = BARS["ascii" if self.is_ascii else "colour" if self._has_colour else "plain"]
        if total is None:  # something moves
            at = done % width
            return [(rest * at, "rest"), (full, "done"), (rest * (width - at - 1), "rest")]
        halves = width * 2 if done >= total else max(2 * width * done // total, 0)
        whole, is_odd = divmod(halves, 2)
        line: Line = [(full * whole + half * is_odd, "whole" if done >= total else "done")]
        left = width - whole - is_odd
        if left:
            line.append((rest * left if is_odd or not whole else begin + rest * (left - 1), "rest"))
        return line


class Words(NamedTuple):
    """A line that is broken between words where it is too long."""

    text: str

    def shown(self, encoding: str) -> Text:
        from rich.text import Text  # noqa: PLC0415

        return Text(writable(on_one_line(self.text), encoding))


class Printed(NamedTuple):
    """What somebody else prints: in their colours, but the cursor stays ours."""

    text: str

    def shown(self, encoding: str) -> Text:
        from rich.text import Text  # noqa: PLC0415

        return Text.from_ansi(writable(self.text, encoding), no_wrap=True, overflow="ignore")


class _Waiting:
    """What waits, as it is printed above the bars: as one text, since rich takes its time for every piece of it."""

    def __init__(self, screen: Screen, waiting: list[Noted | Words | Printed | Line]) -> None:
        self.screen, self.waiting = screen, waiting

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich.segment import Segment  # noqa: PLC0415

        screen, width, encoding = self.screen, options.max_width, console.encoding
        texts: list[str] = []
        for one in self.waiting:
            if isinstance(one, Printed) and one.text.isprintable():
                texts.append(f"{one.text}\n")
                continue
            if isinstance(one, (Words, Printed)):
                yield Segment(writable("".join(texts), encoding))
                yield one.shown(encoding)
                texts = []
                continue
            lines = screen.columns.lines(one, width) if isinstance(one, Noted) else [one]
            for line in lines:
                texts += [f"{screen.styled(part)}\n" for part in broken(line, width)]
        yield Segment(writable("".join(texts), encoding))


def is_terminal(stream: Any) -> bool:
    """Also of what somebody has put in the place of a stream: it may not be able to tell, or be closed."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def _codes(console: Console, style: str) -> str:
    """What a terminal needs before and after a text in some style, with `%s` for the text."""
    from rich.text import Text  # noqa: PLC0415

    if not style or console.legacy_windows:
        return "%s"
    with console.capture() as written:
        console.print(Text("%s", style), end="")
    return written.get()


def _count(unit: str, done: int, total: int | None) -> list[tuple[str, str]]:
    """The share, where there is a whole, and the count."""
    if total is None:
        return [(unit, str(done))]
    share = min(100 * done // total, 100) if total else 100
    return [("", f"{share:3d}%"), (unit, f"{done}/{total}")]


def _fitting(pairs: list[tuple[str, str]], room: int) -> list[tuple[str, str]]:
    """Without the epoch, then without the share, if there is no room for them."""
    for is_left_out in (lambda name, _: name == "epoch", lambda _, value: value.endswith("%")):
        if _width(pairs) > room:
            pairs = [pair for pair in pairs if not is_left_out(*pair)]
    return pairs


def _width(pairs: list[tuple[str, str]]) -> int:
    return sum([len(name) + bool(name) + len(value) + 2 for name, value in pairs]) - 2


def _pieces(pairs: list[tuple[str, str]]) -> Line:
    """Quiet names, plain values."""
    line: Line = []
    for number, (name, value) in enumerate(pairs):
        between = "  " if number else ""
        line += [(f"{between}{name} ", "quiet"), (value, "")] if name else [(f"{between}{value}", "")]
    return line
