"""A search while it lasts: what was asked for, where it is recorded, and the trainer as it was before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..arguments.trial_values import ArgumentValues
from ..callbacks.events import QuietCallback
from ..journal.study_record import DIRECTORY, StudyRecord, StudyWriter, read_study
from ..progress.callback import ProgressCallback
from ..progress.notebook import NotebookProgressCallback
from ..progress.plain import PrinterCallback
from .callback_states import CallbackStates
from .display import SearchDisplay
from .host import SearchHost
from .objective_value import name_objectives
from .search_space import SearchSpace
from .study_directory import StudyDirectory
from .study_identity import Identity, describe_study

# A search has a display of its own.
_DISPLAYS = (PrinterCallback, ProgressCallback, NotebookProgressCallback)


@dataclass
class SearchSession:
    """One call of `hyperparameter_search`."""

    trainer: SearchHost
    space: SearchSpace
    directions: tuple[str, ...]
    num_trials: int | None
    backend: str
    engine: str = ""
    study: str = DIRECTORY
    pruned: tuple[type[BaseException], ...] = ()  # what ends a trial early
    number: int = 0  # of the current trial
    trial_id: str | None = None  # of the current trial, where it is not its number
    has_reported: bool = False  # the current trial, to Ray or wandb
    metric_name: str = ""  # of a sweep of wandb
    is_stopped_by_library: bool = False  # trials have a scheduler of Ray's
    conclude: Callable[[], None] = lambda: None  # ends the current trial before it is over
    values: dict[str, Any] = field(default_factory=dict)  # of arguments, in the current trial
    metrics: dict[str, Any] = field(default_factory=dict)  # of the last evaluation
    reported: dict[int, tuple[float, ...]] = field(default_factory=dict)  # of the current trial, by step
    is_leader: bool = True  # the process that asks and records
    is_quiet: bool = False  # a worker whose lines another process prints

    def __post_init__(self) -> None:
        trainer = self.trainer
        self.is_leader = trainer.is_world_process_zero()
        self.open_study(self.study)
        self._arguments = ArgumentValues(trainer.args)
        self._callbacks = list(trainer.callback_handler.callbacks)
        self._states = CallbackStates(self._callbacks)
        self.display = SearchDisplay(self.num_trials, 0, shows=False)

    def open_study(self, name: str) -> None:
        """Record under this name from now on."""
        self.study = name
        self.directory = StudyDirectory(self.trainer._output_path, name)
        self.writer = StudyWriter(self.trainer._output_path, name)

    @cached_property
    def identity(self) -> Identity:
        """What the search is about, as plain data, which is recorded with the study."""
        return describe_study(self.space, self.directions, self.num_trials, self.trainer)

    def begin(self, engine: str) -> None:
        """Record that the search begins or goes on, and show it."""
        self.engine = engine
        if not self.is_leader:
            return
        objectives = name_objectives(self.trainer.compute_objective, len(self.directions))
        self.writer.write(
            "study",
            backend=self.backend,
            engine=engine,
            directions=list(self.directions),
            objectives=objectives,
            num_trials=self.num_trials,
            space=self.identity["space"],
            arguments=self.identity["arguments"],
        )
        done = sum(trial.is_finished for trial in self.read().trials)
        self.display = SearchDisplay(self.num_trials, done, shows=not self.is_quiet)
        pairs = zip(self.directions, objectives, strict=True)
        wanted = ", ".join(f"{direction} {name}" for direction, name in pairs)
        number = "trials" if self.num_trials is None else f"{self.num_trials} trials"
        went_on = f", {done} of them done" if done else ""
        self.display.begin(f"search: {number}{went_on}, {wanted}, {self.backend} ({engine}), in {self.directory.path}")

    def read(self) -> StudyRecord:
        """Return what is recorded of the study, by all workers."""
        return read_study(self.directory.path, self.study)

    def restore(self) -> None:
        """Give the trainer its arguments and callbacks as they were before the search."""
        self._arguments.restore()
        self._states.restore()
        handler = self.trainer.callback_handler
        handler.callbacks = [*(one for one in self._callbacks if not isinstance(one, _DISPLAYS)), TrialWatch(self)]

    def release(self) -> None:
        """Let go of what the trial before has left in memory: its model, its optimizer, its batches."""
        trainer, handler = self.trainer, self.trainer.callback_handler
        trainer.optimizer = trainer.lr_scheduler = handler.optimizer = handler.lr_scheduler = None
        handler.train_dataloader = handler.eval_dataloader = None
        trainer._run = None

    def end(self) -> None:
        """Give the trainer back as it was, with the model of the last trial."""
        self.display.close()
        self.writer.close()
        self._arguments.restore()
        self._states.restore()
        self.trainer.callback_handler.callbacks = self._callbacks
        self.trainer._trial_directory = None


class TrialWatch(QuietCallback):
    """Records the run of a trial when it begins, and shows how far it is."""

    def __init__(self, session: SearchSession) -> None:
        self._session = session

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        session = self._session
        if not session.is_leader:
            return
        trainer = session.trainer
        directory = session.directory.relative(trainer._get_output_dir(trainer._trial))
        params = get_params(trainer._trial)
        session.directory.write_run(session.number, trainer._run_directory.run_id, directory)
        session.writer.write(
            "trial",
            number=session.number,
            id=session.trial_id or str(session.number),
            name=state.trial_name,
            directory=directory,
            params=params,
            arguments=None if session.values == params else session.values,
            resumed=state.global_step > 0,
            steps=state.max_steps,
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._session.display.show_step(self._session.number, state.global_step, state.max_steps)


def get_params(trial: Any) -> dict[str, Any]:
    """Return the values of a trial, whichever library made it."""
    return dict(getattr(trial, "params", trial) or {})


@contextmanager
def keep_session(session: SearchSession) -> Iterator[SearchSession]:
    """Make a session the trainer's own while entered. Its space stays, for training a trial again."""
    trainer = session.trainer
    trainer._search, trainer.hp_space = session, session.space
    try:
        yield session
    finally:
        session.end()
        trainer._search = None


def check_directions(direction: str | Sequence[str]) -> tuple[str, ...]:
    """Return the directions of the objectives as a tuple."""
    return tuple(direction) if isinstance(direction, (list, tuple)) else (direction,)  # type: ignore[return-value]
