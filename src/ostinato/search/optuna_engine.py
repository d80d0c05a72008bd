"""Optuna, embedded: the study beside the runs, its trials requested one by one and reported when they end."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from ..core.errors import ConfigError
from ..core.notices import note, note_once
from ..core.outputs import BestRun
from ..journal.study_record import COMPLETE, DIRECTORY, FAILED, PRUNED, describe_reason
from . import search_errors
from .host import SearchHost
from .sampler_record import RecordedSampler
from .session import SearchSession
from .shared_trial import SharedTrial, end_others, follow, send_trial
from .study_identity import choose_study, list_differences
from .study_log import open_storage
from .trial_runner import Outcome, check_outcomes, end_trial, run_trial

_ATTRIBUTE = "ostinato"  # of a study: what it searches
_POLL_INTERVAL = 0.2  # seconds between two looks at a trial that another worker trains
_STATES = {COMPLETE: TrialState.COMPLETE, PRUNED: TrialState.PRUNED, FAILED: TrialState.FAIL}
_STARTED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.RUNNING)


class StudyExistsError(ConfigError, optuna.exceptions.DuplicatedStudyError):
    """A name that another study in the storage has (Optuna raises DuplicatedStudyError here)."""


@dataclass
class StudyOptions:
    """The keyword arguments that are Optuna's."""

    storage: Any = None
    sampler: Any = None
    pruner: Any = None
    study_name: str | None = None
    load_if_exists: bool | None = None
    timeout: float | None = None
    n_jobs: int = 1
    gc_after_trial: bool = False
    catch: Any = ()
    callbacks: Any = None
    show_progress_bar: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> StudyOptions:
        """Return the options; every failure of a trial is caught, and the display is the search's own."""
        known = list(cls.__dataclass_fields__)
        for name in given:
            if name not in known:
                raise search_errors.unknown_option(name, known, "Optuna")
        options = cls(**given)
        options.study_name = None if options.study_name is None else str(options.study_name)
        for name, kind in (("sampler", optuna.samplers.BaseSampler), ("pruner", optuna.pruners.BasePruner)):
            present = getattr(options, name)
            if present is not None and not isinstance(present, kind):
                fix = (
                    f"{name}=optuna.{name}s.{present.__name__}()"
                    if isinstance(present, type)
                    else f"take one of optuna.{name}s"
                )
                raise search_errors.wrong_option(name, present, f"no {kind.__name__} of Optuna's", fix)
        if options.n_jobs != 1:
            note_once(
                f"n_jobs={options.n_jobs}: trials are trained one after another, as threads would share one model; to "
                "train several at once, start the script again beside this one: both share the study"
            )
        return options


def run(trainer: SearchHost, session: SearchSession, options: StudyOptions) -> BestRun | list[BestRun]:
    """Train the trials that are missing, and return the best."""
    session.pruned = (optuna.TrialPruned,)
    strategy = trainer.strategy
    if not session.is_leader:
        return follow(session, lambda number, params: SharedTrial(strategy, None, number, params))
    worker = _Worker.open(session, options)
    while (taken := worker.take()) is not None:
        number, trial, checkpoint = taken
        if strategy.size > 1:
            send_trial(session, number, trial.params, checkpoint)
            trial = SharedTrial(strategy, trial, number, trial.params)
        try:
            worker.tell(number, run_trial(session, trial, number, checkpoint))
        finally:
            worker.let_go()
        if options.gc_after_trial:
            gc.collect()
    check_outcomes(session.read())
    best = worker.find_best()
    end_others(session, best)
    return best


@dataclass
class _Worker:
    """A process that takes trials of a study: this one, and perhaps others beside it."""

    session: SearchSession
    options: StudyOptions
    study: optuna.Study
    sampler: RecordedSampler
    first: int  # number of trials that were there before any search of ours
    deadline: float | None
    held: Any = None  # the lock of the current trial
    trial: Any = None
    given_up: set[int] = field(default_factory=set)

    @classmethod
    def open(cls, session: SearchSession, options: StudyOptions) -> _Worker:
        """Open the study, or begin it."""
        with session.directory.lock():
            study = _open_study(session, options)
        directions = session.directions
        sampler = options.sampler or study.sampler
        recorded = RecordedSampler(sampler, session.directory)
        study.sampler = recorded
        session.begin(recorded.name)
        assert len(study.directions) == len(directions)
        deadline = None if options.timeout is None else time.monotonic() + options.timeout
        known = study.user_attrs.get(_ATTRIBUTE, {})
        return cls(session, options, study, recorded, int(known.get("first", 0)), deadline)

    # ---- taking trials --------------------------------------------------------------------------------------------

    def take(self) -> tuple[int, Any, Any] | None:
        """Return the next trial: one that was broken off, or a new one; None if there are enough.

        While another worker trains the last one, wait: it may be broken off.
        """
        while True:
            with self.session.directory.lock():
                for frozen in self._list_running():
                    if frozen.number >= self.first and self._reopen(frozen):
                        return frozen.number, self.trial, self.session.directory.find_checkpoint(frozen.number)
                running = self._list_running()  # in other workers, as none was broken off
                is_over = self.deadline is not None and time.monotonic() >= self.deadline
                if not is_over and not self.sampler.is_exhausted and self._count() > 0:
                    return self._ask(is_alone=not running)
            if is_over or not self._wait_for(running):
                return None

    def _list_running(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    def _count(self) -> float:
        """Return how many trials are missing."""
        if self.session.num_trials is None:
            return float("inf")
        started = self.study.get_trials(deepcopy=False, states=_STARTED)
        return self.session.num_trials - (len(started) - self.first)

    def _ask(self, *, is_alone: bool) -> tuple[int, Any, Any]:
        number = len(self.study.get_trials(deepcopy=False))
        waiting = self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        number = waiting[0].number if waiting else number
        self.held = self.session.directory.try_to_hold(number)
        self.sampler.open_trial(number, is_alone=is_alone)
        self.trial = self.study.ask()
        self.session.reported = {}
        if self.session.space.parameters is not None:
            self.session.space.draw(self.trial)  # while no other worker draws
        return self.trial.number, self.trial, None

    def _reopen(self, frozen: FrozenTrial) -> bool:
        """Take a trial that was broken off; return False if it is being trained."""
        held = self.session.directory.try_to_hold(frozen.number)
        if held is None:
            return False
        present = {one.number: one.state for one in self.study.get_trials(deepcopy=False)}
        if present[frozen.number] != TrialState.RUNNING:
            held.release()
            return False
        recorded = next((one for one in self.session.read().trials if one.number == frozen.number), None)
        if recorded is not None and recorded.is_finished:  # killed before Optuna knew
            values = list(recorded.values or ()) if recorded.state == COMPLETE else None
            self.sampler.open_trial(frozen.number, is_alone=True)
            self.study.tell(Trial(self.study, frozen._trial_id), values, state=_STATES[recorded.state])
            held.release()
            return False
        self.held = held
        self.sampler.open_trial(frozen.number, is_alone=True)
        self.trial = Trial(self.study, frozen._trial_id)
        self.session.reported = {step: (value,) for step, value in frozen.intermediate_values.items()}
        if self.session.space.parameters is not None:
            self.session.space.draw(self.trial)
        checkpoint = self.session.directory.find_checkpoint(frozen.number)
        begins = "goes on from " + checkpoint.name if checkpoint is not None else "is run again"
        note(f"trial {frozen.number} was broken off: it {begins}")
        return True

    def _wait_for(self, running: list[FrozenTrial]) -> bool:
        """Wait a moment if a worker beside this one trains a trial; return False if there is none."""
        others = [one for one in running if one.number >= self.first]
        if not others:
            return False
        note_once(f"waiting for trial {others[0].number}, which another worker trains")
        time.sleep(_POLL_INTERVAL)
        return True

    # ---- results --------------------------------------------------------------------------------------------------

    def tell(self, number: int, outcome: Outcome) -> None:
        """Tell Optuna how a trial has ended, and record it."""
        outcome.params = dict(self.trial.params)
        if outcome.reason is not None:
            self.trial.set_user_attr("reason", describe_reason(outcome.reason))
        values = list(outcome.values) if outcome.state == COMPLETE and outcome.values is not None else None
        end_trial(self.session, outcome)
        self.study.tell(self.trial, values, state=_STATES[outcome.state])
        told = self.study.trials[number] if self.options.callbacks else None
        for callback in self.options.callbacks or ():
            callback(self.study, told)

    def let_go(self) -> None:
        """Release the lock of the trial."""
        if self.held is not None:
            self.held.release()
            self.held = None

    def find_best(self) -> BestRun | list[BestRun]:
        """Return the best trial, or for several objectives the best of Optuna's."""
        if len(self.session.directions) > 1:
            return [BestRun(str(one.number), list(one.values), one.params) for one in self.study.best_trials]
        best = self.study.best_trial
        assert best.value is not None
        return BestRun(str(best.number), best.value, best.params)


# ---- the study -----------------------------------------------------------------------------------------------------


def _open_study(session: SearchSession, options: StudyOptions) -> optuna.Study:
    """Return the study to go on with, or a new one."""
    is_own = options.storage is None
    storage = open_storage(session.directory.path) if is_own else _open_given(options.storage)
    about = session.identity
    name = options.study_name or (_choose_name(session, storage, options) if is_own else None)
    exists = name is not None and name in optuna.get_all_study_names(storage)
    load = options.load_if_exists if options.load_if_exists is not None else is_own
    if exists and load:
        study = optuna.load_study(study_name=name, storage=storage, sampler=options.sampler, pruner=options.pruner)
        known = study.user_attrs.get(_ATTRIBUTE)
        if differing := list_differences(known, about):
            raise search_errors.other_space(study.study_name, differing, session.directory.path)
        if tuple(one.name.lower() for one in study.directions) != session.directions:
            raise search_errors.other_space(
                study.study_name, ["the directions of its objectives"], session.directory.path
            )
    else:
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # the search says it itself
        try:
            study = optuna.create_study(
                storage=storage,
                sampler=options.sampler,
                pruner=options.pruner,
                study_name=name,
                load_if_exists=False,
                directions=cast(Any, list(session.directions)),
            )
        except optuna.exceptions.DuplicatedStudyError as error:
            raise StudyExistsError(
                what=f"there is a study {name!r} in the storage already",
                why="without load_if_exists=True, a storage of your own gets a new study, and names are unique in it",
                fix="load_if_exists=True to go on with it, or another study_name",
            ) from error
        finally:
            optuna.logging.set_verbosity(verbosity)
        known = None
    first = len(study.get_trials(deepcopy=False)) if known is None else known.get("first", 0)
    waiting = len(study.get_trials(deepcopy=False, states=(TrialState.WAITING,))) if known is None else 0
    study.set_user_attr(_ATTRIBUTE, {**about, "first": first - waiting})
    session.open_study(study.study_name)
    return study


def _open_given(storage: Any) -> Any:
    """Return the storage that an address or an object of the user's stands for."""
    fix = "storage='sqlite:///study.db', in a directory that exists"
    if not isinstance(storage, (str, optuna.storages.BaseStorage)):
        raise search_errors.wrong_option("storage", storage, "neither an address nor a storage of Optuna's", fix)
    try:
        return optuna.storages.get_storage(storage)
    except Exception as error:
        why = str(error).splitlines()[0]
        raise ConfigError(f"storage={storage!r} cannot be opened", why, fix) from error


def _choose_name(session: SearchSession, storage: Any, options: StudyOptions) -> str:
    """Return the name of the study to go on with, or of a new one, in the storage beside the runs."""
    present = optuna.get_all_study_summaries(storage)
    another = session.directory.name_new_study([one.study_name for one in present])
    own = [one for one in present if _ATTRIBUTE in one.user_attrs]
    own = [one for one in own if one.study_name.partition("-")[0] == DIRECTORY]
    if not own or options.load_if_exists is False:
        return another
    last = max(own, key=lambda one: one._study_id)
    study = optuna.load_study(study_name=last.study_name, storage=storage)
    known = study.user_attrs[_ATTRIBUTE]
    ended = len(study.get_trials(deepcopy=False, states=_STARTED[:3]))
    is_finished = known.get("num_trials") is not None and ended >= known["num_trials"]
    return choose_study(session.trainer, session.identity, last.study_name, known, another, is_finished=is_finished)
