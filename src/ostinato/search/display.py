"""The search on the terminal: one line per trial, the best marked, and a bar over the trials where there is one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..journal.study_record import COMPLETE, FAILED, PRUNED
from ..progress.live import is_terminal
from ..progress.plain import print_line

_MAX_REASON = 120


class SearchDisplay:
    """Prints a line when a trial has ended. On a terminal, a bar shows the trials below it."""

    def __init__(self, num_trials: int | None, done: int, *, shows: bool) -> None:
        self._shows, self._total = shows, num_trials
        self._bar: Any = None
        self._task: Any = None
        if shows and is_terminal(sys.stdout):
            self._open_bar(done)

    def begin(self, line: str) -> None:
        """Say what is searched."""
        self._print(line)

    def show_step(self, number: int, step: int, steps: int) -> None:
        """Show where the current trial is."""
        if self._bar is not None:
            self._bar.update(self._task, description=f"trial {number}, step {step}/{steps}")

    def end_trial(self, number: int, outcome: Any, params: Mapping[str, Any], *, is_best: bool) -> None:
        """Print the line of a trial."""
        if self._bar is not None:
            self._bar.advance(self._task)
        self._print(format_trial(number, self._total, outcome, params, is_best=is_best))

    def end(self, line: str) -> None:
        """Close the bar, and say what is best."""
        self.close()
        self._print(line)

    def close(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, line: str) -> None:
        if not self._shows:
            return
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print_line(line)

    def _open_bar(self, done: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, transient=True)
        self._task = self._bar.add_task("trials", total=self._total, completed=done)
        self._bar.start()


def format_trial(number: int, total: int | None, outcome: Any, params: Mapping[str, Any], *, is_best: bool) -> str:
    """Return the line of a trial.

    >>> from types import SimpleNamespace
    >>> outcome = SimpleNamespace(state="complete", values=(0.25,), reason=None, step=8, steps=8, seconds=1.5)
    >>> format_trial(3, 20, outcome, {"learning_rate": 3e-05}, is_best=True)
    'trial  3  0.25    best  learning_rate 3e-05  (1.5 s)'
    """
    width = len(str((total or 100) - 1))
    head = f"trial {number:>{width}}"
    tail = f"{format_params(params)}  ({outcome.seconds:.3g} s)"
    if outcome.state == COMPLETE:
        return f"{head}  {format_values(outcome.values):<6}  {'best' if is_best else '    '}  {tail}"
    if outcome.state == PRUNED:
        return f"{head}  pruned at step {outcome.step} of {outcome.steps}  {tail}"
    assert outcome.state == FAILED
    reason = f"{outcome.reason['type']}: {outcome.reason['text']}".splitlines()[0]
    return f"{head}  failed: {reason[:_MAX_REASON]}  {tail}"


def format_values(values: Sequence[float] | None) -> str:
    """Return objectives with four digits."""
    return ", ".join(f"{value:.4g}" for value in values or ())


def format_params(params: Mapping[str, Any]) -> str:
    """Return parameters on one line."""
    shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in params.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())
