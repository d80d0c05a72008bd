"""A signal that asks a run to stop: it finishes its step, saves, says where, and leaves with a code of its own.

Inside an evaluation it does not wait for the end: the evaluation is broken off, the checkpoint says that it is owed,
and the resumed run makes up for it before its next step.

`core.stopping.ask_to_stop` asks for the same without a signal: `train` then returns, as at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from signal import Signals

import torch

from ..arguments.settings import SaveSettings
from ..core.choices import SaveStrategy
from ..core.notices import note
from ..core.stop_request import Interrupted, StopSignals
from .report import save_step
from .run import Run
from .run_host import RunHost

_WITHOUT_SIGNAL = 1  # less than any signal that is listened to


@contextmanager
def stoppable(trainer: RunHost, run: Run) -> Iterator[None]:
    """While entered, signals are obeyed at the next step; the block has to return when `run.stop.stopping` is set."""
    with StopSignals() as stop:
        if run.updates.processes > 1:
            run.stop.agree = partial(_agree, trainer, run, stop)
        else:
            stop.then = run.stop.request
        try:
            with suppress(Interrupted):
                yield
        except KeyboardInterrupt:
            if stop.received is not None:  # the second Ctrl-C: nothing is waited for
                run.saves.forget()
            raise
        if run.stop.stopping:
            note(f"{_name(stop)}: {_saved(trainer, run)}")
    if run.stop.stopping:
        stop.leave()


def breaks_off(trainer: RunHost) -> Callable[[], bool] | None:
    """Tells an evaluation whether to break off; None if nobody may ask for it."""
    run = trainer._run
    if run is None or not trainer.is_in_train:
        return None
    if run.stop.agree is not None:
        return run.stop.agree
    return lambda: run.stop.stopping


def _agree(trainer: RunHost, run: Run, stop: StopSignals) -> bool:
    """Processes stop together, whichever of them was asked to."""
    asked = _WITHOUT_SIGNAL if stop.is_asked else 0
    own = torch.tensor([asked if stop.received is None else int(stop.received)])
    signal = int(trainer.strategy.gather(own).max())
    if signal > _WITHOUT_SIGNAL:
        stop.received = Signals(signal)
    run.stop.stopping = run.stop.stopping or bool(signal)
    return run.stop.stopping


def _name(stop: StopSignals) -> str:
    return (stop.why or "asked to stop") if stop.received is None else stop.received.name


def _saved(trainer: RunHost, run: Run) -> str:
    """Save where it was stopped; what to say of it."""
    step, settings = trainer.state.global_step, SaveSettings.of(trainer.args)
    where = f"stopped after step {step} of {trainer.state.max_steps}"
    if settings.strategy == SaveStrategy.NO:
        return f"{where}; nothing was saved, because save_strategy is 'no'"
    if step == run.origin.step and run.origin.interrupted_evaluation is None:
        return f"{where}; there is nothing new to save"
    checkpoint = f"checkpoint-{step}"
    run.saves.wait()
    if run.origin.interrupted_evaluation is not None or not _is_saved(trainer, checkpoint):
        save_step(trainer, run, trainer.model_wrapped)
        run.saves.wait()
    if run.saves.failure is not None:
        return f"{where}; the checkpoint could not be written"
    if settings.only_model:
        return f"{where}, and saved {checkpoint}: its weights only, because of save_only_model"
    return f"{where}, and saved {checkpoint} in {trainer._home}; train(resume_from_checkpoint=True) goes on from there"


def _is_saved(trainer: RunHost, checkpoint: str) -> bool:
    """Whether it is there already, in the eyes of the first process: all of them have to save, or none."""
    own = checkpoint in [path.name for path in trainer._run_home.checkpoints(trainer._home)]
    return trainer.strategy.broadcast_object(own)
