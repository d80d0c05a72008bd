"""Draw the live part of a terminal, and the lines above it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.state import TrainerState
from .format import Columns, Line, LogRecord, wrap_line
from .messages import ObservedRun, format_header, format_time_shares
from .plain import SHORT_NAMES, escape_unencodable, format_epoch, format_value, handle_write_error, to_single_line
from .speed import Clock, format_duration, format_rate, format_size
from .stdout_proxy import RedirectedStreams, StreamProxy

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.live import Live
    from rich.segment import Segment
    from rich.text import Text

SECONDS_BETWEEN_REFRESHES = 0.25
SECONDS_BETWEEN_LINES = 0.1  # short, to keep the order of logs and prints
# After a drawing the next one waits until drawing has taken at most this share of the time.
MAX_DRAWING_SHARE, MAX_DRAWING_PAUSE = 0.002, 1.0
MAX_PENDING = 1000  # lines; drawn then in any case
# Runs over endless data have a number of epochs that only means "many".
MANY_EPOCHS = 10**6
WIDEST_NAME, SMALLEST_BAR = len("train "), 4
SHOWN_BELOW = ("loss", "learning_rate", "grad_norm")
NEWEST = (*SHOWN_BELOW, "train_tokens_per_second", "train_mfu")
# Done, half done, the beginning of the rest, the rest.
BARS = {"colour": "━╸╺━", "plain": "━╸ ─", "ascii": "==--"}

BLUE, GREEN, GREY = "#5b7cfa", "green", "grey50"  # visible on black and on white
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
    """Return a screen on standard output if that is a terminal that can move its cursor, else None."""
    stream = sys.stdout
    if isinstance(stream, StreamProxy) or not is_terminal(stream):  # FORCE_COLOR may not turn a file into a terminal
        return None  # a run inside a run has no bar of its own
    from rich.console import Console  # noqa: PLC0415

    # This stream, also while sys.stdout is replaced; and texts contain no markup.
    console = Console(file=stream, markup=False, emoji=False, highlight=False)
    return Screen(console, max_str_len) if console.is_terminal and not console.is_dumb_terminal else None


class Screen:
    """The live display of a run. It has no thread of its own."""

    def __init__(self, console: Console, max_str_len: int) -> None:
        self.console = console
        self.max_str_len = max_str_len
        self.is_ascii = console.options.ascii_only
        self._has_colour = console.color_system is not None and not console.no_color
        self.clock = Clock()
        self.columns = Columns(max_str_len, self.is_ascii)
        self._live: Live | None = None
        self._redirected: RedirectedStreams | None = None
        self._lock, self._is_drawing, self._is_closed = threading.RLock(), False, False
        self._drawn_at = self._due_at = self._pause_until = float("-inf")
        self._pending: list[LogRecord | Message | PrintedText | Line] = []
        self._header: str | None = None  # part of the live display until the total time is known
        self._state: TrainerState | None = None  # None: an evaluation without training
        self._samples_per_step = 0
        self._numbers: dict[str, Any] = {}
        self._first_loss: float | None = None
        self._batches: tuple[int, int | None] | None = None
        self._skipped: tuple[int, int, str] | None = None
        self._skipping_since = 0.0
        self._saved: tuple[str, int, int] | None = None
        self._outcome: str | None = None
        self._watched: ObservedRun | None = None
        self._styles = {name: console.get_style(style) for name, style in STYLES.items() if style}
        self._style_codes = {name: _render_style_codes(console, style) for name, style in STYLES.items()}

    def begin_training(
        self, state: TrainerState, *, samples_per_step: int, watched: ObservedRun | None = None
    ) -> None:
        self._state, self._samples_per_step, self._watched = state, samples_per_step, watched
        self.columns.load_history(state.log_history)
        self.draw()

    def show_header(self, line: str) -> None:
        """Show what is going to be trained above the bar; the total time is added when it can be estimated."""
        self._header = line

    def print_line(self, line: str) -> None:
        """Print a message above the bar."""
        self._pending.append(Message(line))
        self._draw_if_due()

    def print(self, text: str) -> None:
        """Print what other code prints, perhaps in another thread, after everything that was logged before."""
        with self._lock:
            self._pending.append(PrintedText(text))
            if not self._is_drawing:
                self.draw()

    def show_loss(self, loss: float) -> None:
        """Show a loss before any is logged."""
        self._first_loss = loss
        self.draw()

    def mark_step(self, state: TrainerState) -> None:
        """Note that a step has ended, and draw if it is time."""
        clock = self.clock
        if clock.first is None:
            clock.mark_step(state.global_step)
        clock.mark, clock.step = time.monotonic(), state.global_step  # mark_step inlined: this runs at every step
        if clock.mark >= self._due_at:
            self._state = state
            self.draw()

    def show_skipped(self, skipped: tuple[int, int, str] | None) -> None:
        """Show how many of how many rows or batches are read and dropped; None when it is done."""
        if self._skipped is None:
            self._skipping_since = self.clock.mark
        self._skipped = skipped
        if skipped is None:
            self.clock.mark_pause()
        self.draw()

    def show_save(self, saved: tuple[str, int, int] | None) -> None:
        """Show the name and the bytes (done, total) of a save that training waits for; None when it is done."""
        is_news = (saved is None) != (self._saved is None)
        self._saved = saved
        if is_news:
            self.draw()
        else:
            self._draw_if_due()

    def begin_evaluation(self, num_batches: int | None) -> None:
        self._batches = (0, num_batches)
        self._draw_if_due()  # a very short evaluation during training need not show

    def mark_batch(self, done: int) -> None:
        if self._batches is not None:
            self._batches = (done, self._batches[1])
        self._draw_if_due()

    def end_evaluation(self) -> None:
        self._batches = None
        self.clock.mark_pause()
        self.draw()

    def log(self, state: TrainerState, logs: Mapping[str, Any], *, best: str | None) -> None:
        """Print a log above the bar and its numbers below it, when it is time to draw."""
        epoch = logs.get("epoch", state.epoch)
        with self._lock:
            self._pending.append(LogRecord(state.global_step, state.max_steps, epoch, dict(logs), best))
        if self._batches is None:
            now = self.clock.mark_training()
            is_first = self._state is None or ("loss" in logs and "loss" not in self._numbers)
        else:
            now, is_first = time.monotonic(), False
        due_at = self._drawn_at if is_first else max(self._drawn_at + SECONDS_BETWEEN_LINES, self._pause_until)
        self._due_at = min(due_at, self._due_at)
        if now >= self._due_at or len(self._pending) >= MAX_PENDING:
            self.draw()

    def finish(self, state: TrainerState, duration: str, lines: list[Line]) -> None:
        """Note that training has ended by itself."""
        self._state = state
        self._outcome = f"stopped after {duration}" if state.global_step < state.max_steps else f"in {duration}"
        self._pending += lines

    def close(self) -> None:
        """Leave the training bar as it is, remove the others, and give the terminal back."""
        if self._state is not None and self._outcome is None:
            self._outcome = f"interrupted after {format_duration(self.clock.mark - self.clock.started)}"
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
                handle_write_error(error, self.console.file)
            self._redirected.end()

    # ---- drawing -------------------------------------------------------------------------------

    def _draw_if_due(self) -> None:
        if time.monotonic() >= self._due_at:
            self.draw()

    def draw(self) -> None:
        """Print the pending lines, and draw the bars as they are now."""
        begun = time.monotonic()
        with self._lock:
            waiting, self._pending, self._is_drawing = self._pending, [], True
            try:
                self._write(waiting)
            except (OSError, ValueError) as error:
                self._is_closed = True
                handle_write_error(error, self.console.file)
            finally:
                self._is_drawing = False
        self._drawn_at = now = time.monotonic()
        self._pause_until = now + min((now - begun) / MAX_DRAWING_SHARE, MAX_DRAWING_PAUSE)
        self._due_at = max(now + SECONDS_BETWEEN_REFRESHES, self._pause_until)

    def _write(self, waiting: list[LogRecord | Message | PrintedText | Line]) -> None:
        if self._is_closed:
            return
        if self._header is not None:
            seconds = self._estimate_total_seconds()
            if waiting or seconds is not None or self._outcome is not None:
                waiting = [Message(format_header(self._header, seconds)), *waiting]
                self._header = None
        for one in waiting:
            if isinstance(one, LogRecord):
                self._numbers.update({name: one.logs[name] for name in NEWEST if name in one.logs})
        if self._state is not None or self._batches is not None:
            self._start_live()
        if waiting:  # printing also redraws the live part
            self.console.print(_PendingLines(self, waiting), end="", crop=False)
        elif self._live is not None:
            self._live.refresh()

    def _estimate_total_seconds(self) -> float | None:
        """Return the seconds of the whole run; None until they can be estimated, and when it is over."""
        state, clock = self._state, self.clock
        if state is None or state.max_steps <= 0 or self._outcome is not None:
            return None
        left = clock.seconds_left(max(state.max_steps - state.global_step, 0))
        return None if left is None else clock.mark - clock.started + left

    def _start_live(self) -> None:
        from rich.live import Live  # noqa: PLC0415

        if self._live is not None:
            return
        self._live = live = Live(
            self,  # drawn with its state at that time, whoever prints
            console=self.console,
            auto_refresh=False,  # a refresh thread would outlive an exception
            redirect_stdout=False,  # done below, in the order of printing
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        live.start()
        self._redirected = RedirectedStreams(self.print, error=is_terminal(sys.stderr))
        self.console.show_cursor(True)  # hidden by rich; a killed run could not show it again

    def apply_styles(self, line: Line) -> str:
        """Return a line with the control codes of this terminal."""
        codes = self._style_codes
        return "".join([codes[style] % text if style else text for text, style in line if text])

    # ---- the live display --------------------------------------------------------------------------

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the bars and the newest numbers. Rich's own tables take six times as long (docs/LOG.md)."""
        from rich.segment import Segment  # noqa: PLC0415

        for number, row in enumerate(self._build_rows(options.max_width)):
            if number:
                yield Segment.line()
            for text, style in row:
                yield Segment(text, self._styles.get(style))

    def _build_rows(self, width: int) -> Iterator[Line]:
        if self._header is not None:
            yield [(escape_unencodable(to_single_line(self._header), self.console.encoding), "")]  # rich crops it
        aligned = 0  # one bar under the other
        if self._state is not None:
            state, total = self._state, self._state.max_steps if self._state.max_steps > 0 else None
            pairs = _format_count("step", state.global_step, total) + self._format_position(state)
            pairs = _drop_to_fit(pairs, width - WIDEST_NAME)
            aligned = _measure_width(pairs)
            yield self._build_row("train", state.global_step, total, pairs, width)
            yield self._build_numbers_row(width)
        if self._skipped is not None:
            done, total, unit = self._skipped
            left = (time.monotonic() - self._skipping_since) / max(done, 1) * (total - done)
            pairs = [*_format_count(unit, done, total), ("", f"{format_duration(left)} left")]
            yield self._build_row("skip", done, total, pairs, width, aligned)
        if self._batches is not None:
            yield self._build_row("eval", *self._batches, _format_count("batch", *self._batches), width, aligned)
        if self._saved is not None:
            name, done, total = self._saved
            share = [("", f"{100 * done // total:3d}%"), ("", format_size(done, total))] if total else []
            yield self._build_row("save", done, total or None, [*share, ("", name)], width, aligned)

    def _format_position(self, state: TrainerState) -> list[tuple[str, str]]:
        epochs = f"/{state.num_train_epochs}" if 0 < state.num_train_epochs < MANY_EPOCHS else ""
        left = self._outcome
        if left is None and state.max_steps > 0:
            left = f"{format_duration(self.clock.seconds_left(max(state.max_steps - state.global_step, 0)))} left"
        return [("epoch", f"{format_epoch(state.epoch)}{epochs}"), *([("", left)] if left else [])]

    def _build_numbers_row(self, width: int) -> Line:
        """Return the numbers under the bar, as far as they fit."""
        numbers, first = self._numbers, self._first_loss
        pairs = [] if first is None or "loss" in numbers else [("first loss", format_value("loss", first, 20))]
        pairs += [
            (SHORT_NAMES.get(name, name), format_value(name, numbers[name], self.max_str_len))
            for name in SHOWN_BELOW
            if name in numbers
        ]
        speed = self.clock.steps_per_second()
        if speed is not None:
            pairs.append(("", f"{format_rate(speed * self._samples_per_step)} samples/s"))
        if "train_tokens_per_second" in numbers:
            pairs.append(("", f"{format_rate(numbers['train_tokens_per_second'])} tokens/s"))
        if "train_mfu" in numbers:
            pairs.append(("MFU", f"{numbers['train_mfu']:.0%}"))
        if self._watched is not None:
            pairs += format_time_shares(self._watched.seconds())
        while pairs and _measure_width(pairs) > width - WIDEST_NAME:
            pairs.pop()
        return [(" " * WIDEST_NAME, ""), *_style_pairs(pairs)]

    def _build_row(
        self, name: str, done: int, total: int | None, pairs: list[tuple[str, str]], width: int, aligned: int = 0
    ) -> Line:
        """Return a name, a bar that fills the room there is, and the text after it."""
        used = _measure_width(pairs)
        room = width - WIDEST_NAME - max(used, aligned) - 1
        bar = [*self._build_bar(done, total, room), (" ", "")] if room >= SMALLEST_BAR else []
        return [(name.ljust(WIDEST_NAME), "subject"), *bar, *_style_pairs(pairs), (" " * (aligned - used), "")]

    def _build_bar(self, done: int, total: int | None, width: int) -> Line:
        """Return a bar. Without colours the rest of it is a thinner line."""
        full, half, begin, rest = BARS["ascii" if self.is_ascii else "colour" if self._has_colour else "plain"]
        if total is None:  # a moving mark
            at = done % width
            return [(rest * at, "rest"), (full, "done"), (rest * (width - at - 1), "rest")]
        halves = width * 2 if done >= total else max(2 * width * done // total, 0)
        whole, is_odd = divmod(halves, 2)
        line: Line = [(full * whole + half * is_odd, "whole" if done >= total else "done")]
        left = width - whole - is_odd
        if left:
            line.append((rest * left if is_odd or not whole else begin + rest * (left - 1), "rest"))
        return line


class Message(NamedTuple):
    """A line that is wrapped between words."""

    text: str

    def to_text(self, encoding: str) -> Text:
        from rich.text import Text  # noqa: PLC0415

        return Text(escape_unencodable(to_single_line(self.text), encoding))


class PrintedText(NamedTuple):
    """What other code prints: its colours are kept, its cursor movements are not."""

    text: str

    def to_text(self, encoding: str) -> Text:
        from rich.text import Text  # noqa: PLC0415

        return Text.from_ansi(escape_unencodable(self.text, encoding), no_wrap=True, overflow="ignore")


class _PendingLines:
    """The pending lines as one text, since rich takes its time for every segment."""

    def __init__(self, screen: Screen, waiting: list[LogRecord | Message | PrintedText | Line]) -> None:
        self.screen, self.waiting = screen, waiting

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich.segment import Segment  # noqa: PLC0415

        screen, width, encoding = self.screen, options.max_width, console.encoding
        texts: list[str] = []
        for one in self.waiting:
            if isinstance(one, PrintedText) and one.text.isprintable():
                texts.append(f"{one.text}\n")
                continue
            if isinstance(one, (Message, PrintedText)):
                yield Segment(escape_unencodable("".join(texts), encoding))
                yield one.to_text(encoding)
                texts = []
                continue
            lines = screen.columns.format_lines(one, width) if isinstance(one, LogRecord) else [one]
            for line in lines:
                texts += [f"{screen.apply_styles(part)}\n" for part in wrap_line(line, width)]
        yield Segment(escape_unencodable("".join(texts), encoding))


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal; what replaces a stream may not be able to tell, or be closed."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def _render_style_codes(console: Console, style: str) -> str:
    """Return the control codes of a style around `%s`, which stands for the text."""
    from rich.text import Text  # noqa: PLC0415

    if not style or console.legacy_windows:
        return "%s"
    with console.capture() as written:
        console.print(Text("%s", style), end="")
    return written.get()


def _format_count(unit: str, done: int, total: int | None) -> list[tuple[str, str]]:
    """Return the share, where there is a total, and the count."""
    if total is None:
        return [(unit, str(done))]
    share = min(100 * done // total, 100) if total else 100
    return [("", f"{share:3d}%"), (unit, f"{done}/{total}")]


def _drop_to_fit(pairs: list[tuple[str, str]], room: int) -> list[tuple[str, str]]:
    """Drop the epoch, then the share, if there is no room for them."""
    for is_left_out in (lambda name, _: name == "epoch", lambda _, value: value.endswith("%")):
        if _measure_width(pairs) > room:
            pairs = [pair for pair in pairs if not is_left_out(*pair)]
    return pairs


def _measure_width(pairs: list[tuple[str, str]]) -> int:
    return sum([len(name) + bool(name) + len(value) + 2 for name, value in pairs]) - 2


def _style_pairs(pairs: list[tuple[str, str]]) -> Line:
    """Style names as quiet and values as plain."""
    line: Line = []
    for number, (name, value) in enumerate(pairs):
        between = "  " if number else ""
        line += [(f"{between}{name} ", "quiet"), (value, "")] if name else [(f"{between}{value}", "")]
    return line
