"""Logs as text: one dict per line, or `step 50 epoch 0.53 loss 0.4123`."""

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
THREE_DIGITS = ("learning_rate", "grad_norm")  # nobody reads a learning rate to four digits; all others have four
NOT_SHOWN = ("total_flos",)
FIRST = ("loss", "learning_rate", "grad_norm")


class PrinterCallback(QuietCallback):
    """Prints every log as a dict whose floats have four significant digits, as transformers does.

    Used instead of `ProgressCallback` when `disable_tqdm=True`.

    >>> PrinterCallback().on_log(None, TrainerState(), TrainerControl(), logs={"loss": 0.98512, "epoch": 1.0})
    {'loss': '0.9851', 'epoch': '1'}
    """

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        if state.is_local_process_zero and logs is not None:
            say(str({name: _four_digits(value) for name, value in logs.items() if name not in NOT_SHOWN}))


def say(line: str) -> None:
    """Print a line now: what waits in a buffer is lost when the run is killed, and invisible until then.

    What the stream cannot encode is written as an escape, and nobody's training ends because nobody listens.
    """
    try:
        print(writable(line, getattr(sys.stdout, "encoding", None)))  # noqa: T201
        getattr(sys.stdout, "flush", bool)()  # what stands in for a stream may not have it
    except (OSError, ValueError) as error:
        nobody_listens(error, sys.stdout)


def nobody_listens(error: OSError | ValueError, stream: Any) -> None:
    """A pipe whose reader has gone, a terminal that was hung up, a full disk, a closed file; raises anything else."""
    if isinstance(error, ValueError) and not getattr(stream, "closed", False):
        raise error
    note_once(f"progress is not shown any more, and training goes on: {error}", key="nobody listens")


def writable(text: str, encoding: str | None) -> str:
    """The same text, with escapes for what an encoding does not have.

    >>> writable("häufig ↑", "latin-1")
    'häufig \\\\u2191'
    """
    if text.isascii():
        return text
    encoding = encoding or "utf-8"
    return text.encode(encoding, errors="backslashreplace").decode(encoding)


def on_one_line(text: str) -> str:
    """Without anything that a terminal would obey: blanks for other white space, escapes for control codes.

    >>> on_one_line("two\\nlines in \\x1b[31mred")
    'two lines in \\\\x1b[31mred'
    """
    if text.isprintable():
        return text
    text = " ".join(text.split())
    return "".join([one if one.isprintable() else one.encode("unicode_escape").decode() for one in text])


def plain_line(
    state: TrainerState,
    logs: Mapping[str, Any],
    *,
    best: str | None = None,
    left: str | None = None,
    max_str_len: int = 100,
) -> str:
    """Everything that was logged as one line of `name value` pairs; `best` names the metric that has improved.

    `left` is the time that the run still takes.

    >>> plain_line(TrainerState(global_step=50), {"loss": 0.41234, "learning_rate": 4.1e-05, "epoch": 0.53191})
    'step 50 epoch 0.53 loss 0.4123 lr 4.1e-05'
    """
    parts = [f"step {state.global_step} epoch {epoch_text(logs.get('epoch', state.epoch))}"]
    for name, value in shown(logs).items():
        mark = " (best)" if name == best else ""
        parts.append(f"{label_of(name)} {value_text(name, value, max_str_len)}{mark}")
    if left is not None:
        parts.append(f"{left} left")
    return " ".join(parts)


def shown(logs: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a log that a line shows by name; step and epoch begin every line anyway."""
    names = [name for name in FIRST if name in logs]
    names += [name for name in logs if name not in (*FIRST, *NOT_SHOWN, "epoch", "step")]
    return {name: logs[name] for name in names}


def value_text(name: str, value: Any, max_str_len: int) -> str:
    """A value on one line: a number with as many digits as its name deserves, a long text cut and said to be cut."""
    if type(value) is not float:  # most are
        if isinstance(value, Integral):  # includes bool
            return _integer_text(value)
        if not isinstance(value, Real):
            return _cut(on_one_line(" ".join(str(value).split())), max_str_len)
        value = float(value)
    return f"{value:.3g}" if name in THREE_DIGITS else f"{value:.4g}"


def number_in(value: Any) -> float | None:
    """A number that others can be compared with; None for anything else, and for NaN."""
    if not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 300 digits
        number = math.inf if value == abs(value) else -math.inf
    return None if math.isnan(number) else number


def label_of(name: Any) -> str:
    """What a number is called on a line."""
    return SHORT_NAMES.get(name) or on_one_line(str(name))


def _integer_text(value: Any) -> str:
    """Python refuses to write integers of thousands of digits, and nobody would read them."""
    return str(value) if -(10**30) < value < 10**30 else f"about 2^{int(value).bit_length()}"


def _cut(text: str, max_str_len: int) -> str:
    return text if len(text) <= max_str_len else f"{text[:max_str_len]}... ({len(text)} characters)"


def epoch_text(epoch: Any) -> str:
    """Two decimals, unless the epoch is so long that they would stay zero."""
    if not isinstance(epoch, Real):
        return str(epoch)
    number = float(epoch)
    return f"{number:.2g}" if 0 < number < 0.01 else f"{number:.2f}"


def _four_digits(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value
