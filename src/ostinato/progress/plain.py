"""Print logs as text: one dict per line, or `step 50 epoch 0.53 loss 0.4123`."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from ..callbacks.events import QuietCallback
from ..core.notices import note_once
from ..core.state import TrainerControl, TrainerState

SHORT_NAMES = {"learning_rate": "lr", "grad_norm": "grad"}
THREE_DIGITS = ("learning_rate", "grad_norm")  # all others have four
HIDDEN = ("total_flos",)
FIRST = ("loss", "learning_rate", "grad_norm")


class PrinterCallback(QuietCallback):
    """Prints every log as a dict whose floats have four significant digits, as transformers does.

    Used instead of `ProgressCallback` when `disable_tqdm=True`.

    >>> PrinterCallback().on_log(None, TrainerState(), TrainerControl(), logs={"loss": 0.98512, "epoch": 1.0})
    {'loss': '0.9851', 'epoch': '1'}
    """

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        if state.is_local_process_zero and logs is not None:
            print_line(str({name: _round_floats(value) for name, value in logs.items() if name not in HIDDEN}))


def print_line(line: str) -> None:
    """Print a line at once: what is buffered is lost when the run is killed.

    What the stream cannot encode is written as an escape. A stream that cannot be written to does not end training.
    """
    try:
        print(escape_unencodable(line, getattr(sys.stdout, "encoding", None)))  # noqa: T201
        getattr(sys.stdout, "flush", bool)()  # a replaced stream may not have it
    except (OSError, ValueError) as error:
        handle_write_error(error, sys.stdout)


def handle_write_error(error: OSError | ValueError, stream: Any) -> None:
    """Report once that output has failed (a closed pipe, a full disk); raise any other error."""
    if isinstance(error, ValueError) and not getattr(stream, "closed", False):
        raise error
    note_once(f"progress is no longer shown, training continues: {error}", key="output failed")


def escape_unencodable(text: str, encoding: str | None) -> str:
    """Return a text with escapes for what an encoding lacks.

    >>> escape_unencodable("häufig ↑", "latin-1")
    'häufig \\\\u2191'
    """
    if text.isascii():
        return text
    encoding = encoding or "utf-8"
    return text.encode(encoding, errors="backslashreplace").decode(encoding)


def to_single_line(text: str) -> str:
    """Return a text without control codes: spaces for other white space, escapes for the rest.

    >>> to_single_line("two\\nlines in \\x1b[31mred")
    'two lines in \\\\x1b[31mred'
    """
    if text.isprintable():
        return text
    text = " ".join(text.split())
    return "".join([one if one.isprintable() else one.encode("unicode_escape").decode() for one in text])


def format_plain_line(
    state: TrainerState,
    logs: Mapping[str, Any],
    *,
    best: str | None = None,
    left: str | None = None,
    max_str_len: int = 100,
) -> str:
    """Return a log as one line of `name value` pairs; `best` names the metric that has improved.

    `left` is the time that the run still takes.

    >>> format_plain_line(TrainerState(global_step=50), {"loss": 0.41234, "learning_rate": 4.1e-05, "epoch": 0.53191})
    'step 50 epoch 0.53 loss 0.4123 lr 4.1e-05'
    """
    parts = [f"step {state.global_step} epoch {format_epoch(logs.get('epoch', state.epoch))}"]
    for name, value in select_shown(logs).items():
        mark = " (best)" if name == best else ""
        parts.append(f"{format_label(name)} {format_value(name, value, max_str_len)}{mark}")
    if left is not None:
        parts.append(f"{left} left")
    return " ".join(parts)


def select_shown(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a log that is shown by name; step and epoch begin every line anyway."""
    names = [name for name in FIRST if name in logs]
    names += [name for name in logs if name not in (*FIRST, *HIDDEN, "epoch", "step")]
    return {name: logs[name] for name in names}


def format_value(name: str, value: Any, max_str_len: int) -> str:
    """Return a value as one line: numbers with three or four digits, long texts cut."""
    if type(value) is not float:  # most are
        if isinstance(value, Integral):  # includes bool
            return _format_integer(value)
        if not isinstance(value, Real):
            return _cut(to_single_line(" ".join(str(value).split())), max_str_len)
        value = float(value)
    return f"{value:.3g}" if name in THREE_DIGITS else f"{value:.4g}"


def to_number(value: Any) -> float | None:
    """Return a value as a float that can be compared; None for anything else, and for NaN."""
    if not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 300 digits
        number = math.inf if value == abs(value) else -math.inf
    return None if math.isnan(number) else number


def format_label(name: Any) -> str:
    """Return what a number is called on a line."""
    return SHORT_NAMES.get(name) or to_single_line(str(name))


def _format_integer(value: Any) -> str:
    """Format an integer; Python refuses to print those of thousands of digits."""
    return str(value) if -(10**30) < value < 10**30 else f"about 2^{int(value).bit_length()}"


def _cut(text: str, max_str_len: int) -> str:
    return text if len(text) <= max_str_len else f"{text[:max_str_len]}... ({len(text)} characters)"


def format_epoch(epoch: Any) -> str:
    """Format an epoch with two decimals, or two digits where those would be zero."""
    if not isinstance(epoch, Real):
        return str(epoch)
    number = float(epoch)
    return f"{number:.2g}" if 0 < number < 0.01 else f"{number:.2f}"


def _round_floats(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value
