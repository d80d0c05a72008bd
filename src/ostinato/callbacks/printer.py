"""Logs as text: one dict per line, or `step 50 epoch 0.53 loss 0.4123`."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from ..core.state import TrainerControl, TrainerState
from .base import QuietCallback

SHORT_NAMES = {"learning_rate": "lr", "grad_norm": "grad"}
# Nobody reads a learning rate to four digits; everything else has four.
DIGITS = {"learning_rate": 3, "grad_norm": 3}
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
    """Print a line now: what waits in a buffer is lost when the run is killed, and invisible until then."""
    print(line, flush=True)  # noqa: T201


def plain_line(
    state: TrainerState, logs: Mapping[str, Any], *, best: str | None = None, max_str_len: int = 100
) -> str:
    """Everything that was logged as one line of `name value` pairs; `best` names the metric that has improved.

    >>> plain_line(TrainerState(global_step=50), {"loss": 0.41234, "learning_rate": 4.1e-05, "epoch": 0.53191})
    'step 50 epoch 0.53 loss 0.4123 lr 4.1e-05'
    """
    parts = [f"step {state.global_step} epoch {epoch_text(logs.get('epoch', state.epoch))}"]
    for name, value in shown(logs).items():
        mark = " (best)" if name == best else ""
        parts.append(f"{SHORT_NAMES.get(name, name)} {value_text(name, value, max_str_len)}{mark}")
    return " ".join(parts)


def shown(logs: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a log that a line shows by name; step and epoch begin every line anyway."""
    names = [name for name in FIRST if name in logs]
    names += [name for name in logs if name not in (*FIRST, *NOT_SHOWN, "epoch", "step")]
    return {name: logs[name] for name in names}


def value_text(name: str, value: Any, max_str_len: int) -> str:
    """A value on one line: a number with as many digits as its name deserves, a long text cut and said to be cut."""
    if isinstance(value, Integral):  # includes bool
        return str(value)
    if isinstance(value, Real):
        return f"{float(value):.{DIGITS.get(name, 4)}g}"
    text = " ".join(str(value).split())
    return text if len(text) <= max_str_len else f"{text[:max_str_len]}... ({len(text)} characters)"


def epoch_text(epoch: Any) -> str:
    """Two decimals, unless the epoch is so long that they would stay zero."""
    if not isinstance(epoch, Real):
        return str(epoch)
    number = float(epoch)
    return f"{number:.2g}" if 0 < number < 0.01 else f"{number:.2f}"


def _four_digits(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value
