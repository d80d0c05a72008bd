"""One trial for several processes: the first asks the library, and all get the same values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.protocols import Strategy
from .session import SearchSession
from .trial_runner import run_trial


class SharedTrial:
    """Has the methods of an Optuna trial. Every process makes the same calls in the same order.

    Args:
        trial: The trial, in the first process; None in the others.
        number: Its number.
        params: What is drawn already.
    """

    def __init__(self, strategy: Strategy, trial: Any, number: int, params: Mapping[str, Any]) -> None:
        self._strategy, self._trial = strategy, trial
        self.number = number
        self.params = dict(params)
        self.user_attrs: dict[str, Any] = {}

    def suggest_float(self, name: str, *args: Any, **kwargs: Any) -> float:
        return self._draw("suggest_float", name, args, kwargs)

    def suggest_int(self, name: str, *args: Any, **kwargs: Any) -> int:
        return self._draw("suggest_int", name, args, kwargs)

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        return self._draw("suggest_categorical", name, (choices,), {})

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high, log=True)

    def report(self, value: float, step: int) -> None:
        if self._trial is not None:
            self._trial.report(value, step)

    def should_prune(self) -> bool:
        return self._share(lambda: self._trial.should_prune())

    def set_user_attr(self, key: str, value: Any) -> None:
        self.user_attrs[key] = value
        if self._trial is not None:
            self._trial.set_user_attr(key, value)

    def _draw(self, method: str, name: str, args: Any, kwargs: Any) -> Any:
        self.params[name] = self._share(lambda: getattr(self._trial, method)(name, *args, **kwargs))
        return self.params[name]

    def _share(self, ask: Callable[[], Any]) -> Any:
        """Ask in the first process; return its answer, or raise its error, in all."""
        answer: Any = None
        if self._trial is not None:
            try:
                answer = (ask(), None)
            except Exception as error:
                answer = (None, error)
        value, failure = self._strategy.broadcast_object(answer)
        if failure is not None:
            raise failure
        return value


# ---- what the first process sends to the others ---------------------------------------------------------------------


def send_trial(session: SearchSession, number: int, params: Mapping[str, Any], checkpoint: Any = None) -> None:
    """Let the other processes train a trial with this one."""
    strategy = session.trainer.strategy
    if strategy.size > 1:
        strategy.broadcast_object(("trial", number, params, checkpoint, session.study))


def end_others(session: SearchSession, best: Any) -> None:
    """Let the other processes return from the search, with its result."""
    strategy = session.trainer.strategy
    if strategy.size > 1:
        strategy.broadcast_object(("end", best, None, None, None))


def follow(session: SearchSession, make_trial: Callable[[int, dict[str, Any]], Any]) -> Any:
    """Train what the first process sends; return the result of the search."""
    while True:
        kind, what, params, checkpoint, study = session.trainer.strategy.broadcast_object(None)
        if kind == "end":
            return what
        session.open_study(study)
        run_trial(session, make_trial(what, params), what, checkpoint)
