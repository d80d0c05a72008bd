"""Stop signals: the run finishes its step, saves, reports where it stopped, and exits with a code of its own.

A signal during an evaluation does not wait for its end: the evaluation is interrupted, the checkpoint records this,
and the resumed run repeats the evaluation before its next step.

`core.stopping.ask_to_stop` requests the same without a signal: `train` then returns, as at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from signal import Signals

from ..arguments.settings import SaveSettings
from ..core.choices import SaveStrategy
from ..core.notices import note
from ..core.stop_request import Interrupted, StopSignals
from .report import save_step
from .run import Run
from .run_host import StopHost

_WITHOUT_SIGNAL = 1  # smaller than any signal that is handled


@contextmanager
def handle_stop_signals(trainer: StopHost, run: Run) -> Iterator[None]:
    """Act on stop signals at the next step while entered.

    The block has to return when `run.stop.stopping` is set.
    """
    returns = (Signals.SIGTERM,) if SaveSettings.of(trainer.args).just_in_time else ()
    with StopSignals(return_on=returns) as stop:
        if trainer.strategy.processes > 1:
            run.stop.agree = partial(_agree, trainer, run, stop)
            run.stop.follow = partial(_follow, trainer, run, stop)
            if run.updates.weights.ballot is not None:
                run.updates.weights.ballot.find_stop = partial(_find_own_signal, stop)
        else:
            stop.on_stop = run.stop.request
        try:
            with suppress(Interrupted):
                yield
        except KeyboardInterrupt:
            if stop.received is not None:  # the second Ctrl-C: exit without waiting
                run.saves.forget()
            raise
        if run.stop.stopping:
            note(f"{_name_reason(stop)}: {_save_last_step(trainer, run)}")
    if run.stop.stopping:
        stop.end_program()


def find_stop_check(run: Run) -> Callable[[], bool]:
    """Return a function that says whether the run has to stop, and with it an evaluation."""
    return run.stop.agree if run.stop.agree is not None else lambda: run.stop.stopping


def _agree(trainer: StopHost, run: Run, stop: StopSignals) -> bool:
    """Return whether any process was asked to stop: all of them stop together."""
    _stop_all(run, stop, int(max(map(max, trainer.strategy.exchange([_find_own_signal(stop)]).get()))))
    return run.stop.stopping


def _follow(trainer: StopHost, run: Run, stop: StopSignals) -> None:
    """Do what the processes asked for in their votes on this step."""
    ballot = run.updates.weights.ballot
    if ballot is None or not ballot.is_cast:
        return
    _stop_all(run, stop, int(max(vote.stop for vote in ballot.votes)))
    if any(vote.searches for vote in ballot.votes):
        trainer.model_wrapped = trainer.strategy.search_unused(trainer.model_wrapped)


def _find_own_signal(stop: StopSignals) -> int:
    """Return the signal that this process received; a number below all signals if it was asked without one."""
    asked = _WITHOUT_SIGNAL if stop.is_asked else 0
    return asked if stop.received is None else int(stop.received)


def _stop_all(run: Run, stop: StopSignals, signal: int) -> None:
    """Stop if any process was asked to, for the reason of that process."""
    if signal > _WITHOUT_SIGNAL:
        stop.received = Signals(signal)
    run.stop.stopping = run.stop.stopping or bool(signal)


def _name_reason(stop: StopSignals) -> str:
    return (stop.why or "asked to stop") if stop.received is None else stop.received.name


def _save_last_step(trainer: StopHost, run: Run) -> str:
    """Save at the step at which the run stopped; return the message about it."""
    step, settings = trainer.state.global_step, SaveSettings.of(trainer.args)
    where = f"stopped after step {step} of {trainer.state.max_steps}"
    if settings.strategy == SaveStrategy.NO and not settings.just_in_time:
        return f"{where}; nothing was saved, because save_strategy is 'no'"
    if step == run.origin.step and run.origin.interrupted_evaluation is None:
        return f"{where}; there is nothing new to save"
    checkpoint = f"checkpoint-{step}"
    run.saves.wait()
    run.saves.agree()
    if run.origin.interrupted_evaluation is not None or not _is_saved(trainer, checkpoint):
        save_step(trainer, run, trainer.model_wrapped)
        run.saves.wait()
        run.saves.agree()
    if run.saves.failure is not None:
        return f"{where}; the checkpoint could not be written"
    if settings.only_model:
        return f"{where}, and saved {checkpoint}: its weights only, because of save_only_model"
    saved = f"{where}, and saved {checkpoint} in {trainer._output_path}"
    return f"{saved}; train(resume_from_checkpoint=True) goes on from there"


def _is_saved(trainer: StopHost, checkpoint: str) -> bool:
    """Return whether the first process finds the checkpoint on disk: all processes have to save, or none."""
    own = checkpoint in [path.name for path in trainer._run_directory.list_checkpoints(trainer._output_path)]
    return trainer.strategy.broadcast_object(own)
