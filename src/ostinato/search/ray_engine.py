"""Ray Tune: trials in processes of a cluster, each with a trainer of its own that was sent there.

A worker records its trial in the directory of the search, which every node has to reach, as with Ray's own storage.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import ray
from ray import tune
from ray.exceptions import RayError

from ..arguments.name_suggestion import suggest_name
from ..arguments.trial_values import set_values
from ..compat.install import are_names_installed, install_names
from ..core.choices import HPSearchBackend
from ..core.errors import ConfigError
from ..core.notices import note_once
from ..core.outputs import BestRun
from ..journal.study_record import COMPLETE, FAILED, PRUNED, NoStudyError, TrialRecord, read_study
from . import search_errors
from .host import SearchHost
from .ray_domains import build_domains, is_domain
from .reports import name_objectives
from .search_space import list_parameters
from .session import SearchSession, keep_session
from .study_identity import choose_study
from .trial_runner import (
    Outcome,
    check_outcomes,
    conclude_stopped_trial,
    discard_surpassed,
    end_trial,
    run_trial,
)
from .tune_checkpoint import find

_DEFAULT_RETRIES = 1  # of a trial whose process dies
_STORE_INTERVAL = "TUNE_GLOBAL_CHECKPOINT_S"


def run(trainer: SearchHost, session: SearchSession, options: Mapping[str, Any]) -> BestRun | list[BestRun]:
    """Train the trials on the cluster, and return the best."""
    if trainer.strategy.processes > 1:
        raise ConfigError(
            what=f"a search with Ray in one of {trainer.strategy.processes} processes",
            why="Ray starts the processes of the trials itself",
            fix="start the script without torchrun, or use backend='optuna', whose trials have all the processes",
        )
    config = _build_config(session)
    session.open_study(_choose_study(session, _count_trials(session, config)))
    asked = _complete_options(session, options)
    proposer = asked.get("search_alg") or asked.get("scheduler")
    session.begin("random search" if proposer is None else type(proposer).__name__)
    sent = _pack(trainer, _describe_search(session, asked))
    lines = _Lines(session)
    asked["callbacks"] = [*(asked.get("callbacks") or ()), lines]
    trainable = tune.with_parameters(_train_trial, sent=sent, has_names=are_names_installed())
    try:
        with _store_state_at_once():
            analysis = tune.run(trainable, config=config, num_samples=session.num_trials or 1, **asked)
    except RayError as error:
        raise ConfigError(
            what="Ray Tune has ended the search", why=str(error).splitlines()[0], fix="see its messages above"
        ) from error
    for trial in analysis.trials:
        lines.settle(trial, None if trial.status == "TERMINATED" else {"type": "RayError", "text": trial.status})
    _end_lost_trials(session, {str(trial.trial_id) for trial in analysis.trials})
    record = session.read()
    check_outcomes(record)
    discard_surpassed(session)
    runs = [BestRun(one.id, _unpack(one), one.params, analysis) for one in record.find_best()]
    return runs if len(session.directions) > 1 else runs[0]


def _unpack(trial: TrialRecord) -> Any:
    values = trial.values or ()
    return values[0] if len(values) == 1 else list(values)


# ---- before the trials ---------------------------------------------------------------------------------------------


def _choose_study(session: SearchSession, count: int) -> str:
    """Return the name of the study to go on with, or of a new one."""
    another = session.directory.name_new_study()
    try:
        last = read_study(session.directory.path)
    except NoStudyError:
        return another
    if last.backend != session.backend:
        return another
    known = {"space": last.space, "directions": list(last.directions), "arguments": last.arguments}
    is_finished = sum(one.is_finished for one in last.trials) >= count
    return choose_study(session.trainer, session.identity, last.name, known, another, is_finished=is_finished)


def _count_trials(session: SearchSession, config: Mapping[str, Any]) -> int:
    """Return how many trials Ray makes of a space: every point of a grid is tried `num_trials` times."""
    grids = [len(one["grid_search"]) for one in config.values() if isinstance(one, Mapping)]
    return (session.num_trials or 1) * math.prod(grids)


def _build_config(session: SearchSession) -> dict[str, Any]:
    """Return the space as Ray has it: as it was given, if it was given in Ray's form."""
    given = session.space.given
    given = given(None) if callable(given) and session.space.parameters is not None else given
    if isinstance(given, Mapping) and given and all(is_domain(one) for one in given.values()):
        return dict(given)
    return build_domains(list_parameters(session.space))


def _complete_options(session: SearchSession, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `tune.run`, with a metric for whatever needs one."""
    asked = dict(options)
    known = list(tune.run.__code__.co_varnames[: tune.run.__code__.co_argcount + tune.run.__code__.co_kwonlyargcount])
    for name in asked:
        if name not in known:
            near = suggest_name(name, known)
            raise search_errors.UnknownOptionError(
                what=f"hyperparameter_search() got an unexpected argument {name!r}",
                why="what it does not know is passed to ray.tune.run, which does not have it",
                fix=f"did you mean {near!r}?" if near else "leave it out",
            )
    if "resources_per_trial" not in asked:
        gpus = int(ray.cluster_resources().get("GPU", 0)) if ray.is_initialized() else 0
        asked["resources_per_trial"] = {"cpu": 1, **({"gpu": 1} if gpus else {})}
        note_once(f"resources_per_trial={asked['resources_per_trial']}: trials are trained side by side")
    if len(session.directions) == 1:
        mode = "min" if session.directions[0] == "minimize" else "max"
        proposers = (asked.get("scheduler"), asked.get("search_alg"))
        own = any(getattr(one, "_metric", None) is not None for one in proposers)
        if not own:
            asked.setdefault("metric", "objective")
            asked.setdefault("mode", mode)
    asked.setdefault("max_failures", _DEFAULT_RETRIES)
    asked.setdefault("raise_on_failed_trial", False)  # a trial that fails is recorded
    asked.setdefault("storage_path", str((session.directory.path / "ray").absolute()))
    asked.setdefault("name", session.study)
    if any(Path(asked["storage_path"], asked["name"]).glob("experiment_state-*.json")):
        asked.setdefault("resume", True)
    asked.setdefault("verbose", 0)
    return asked


def _pack(trainer: SearchHost, search: Mapping[str, Any]) -> bytes:
    """Return the trainer, without its model, and what is searched as bytes: a trial makes its own model."""
    kept = {name: vars(trainer)[name] for name in ("model", "model_wrapped", "_run", "_search", "accelerator")}
    handler, callbacks = trainer.callback_handler, trainer.callback_handler.callbacks
    vars(trainer).update(dict.fromkeys(kept))
    handler.model = None
    try:
        return cloudpickle.dumps((trainer, search))
    except Exception as error:
        raise ConfigError(
            what="the trainer cannot be sent to a worker of Ray",
            why=_find_unsendable(trainer) or str(error),
            fix="let model_init, the data sets and the callbacks hold nothing that cannot be pickled",
        ) from error
    finally:
        vars(trainer).update(kept)
        handler.model, handler.callbacks = trainer.model, callbacks


def _find_unsendable(trainer: Any) -> str | None:
    for name, value in vars(trainer).items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            return f"its attribute {name!r}: {error}"
    return None


def _describe_search(session: SearchSession, asked: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "output_dir": str(session.directory.output_dir.absolute()),
        "study": session.study,
        "space": session.space,
        "directions": session.directions,
        "num_trials": session.num_trials,
        "directory": os.getcwd(),
        "has_scheduler": asked.get("scheduler") is not None,
    }


@contextmanager
def _store_state_at_once() -> Iterator[None]:
    """Let Ray store its state after every event while entered, not every ten seconds: a trial that it does not know
    when the search goes on would be tried again.
    """
    if _STORE_INTERVAL in os.environ:
        yield
        return
    os.environ[_STORE_INTERVAL] = "0"
    try:
        yield
    finally:
        del os.environ[_STORE_INTERVAL]


# ---- while they run ------------------------------------------------------------------------------------------------


class _Lines(tune.Callback):
    """Prints the line of a trial when it has ended; records one that Ray has stopped, or whose process has died."""

    def __init__(self, session: SearchSession) -> None:
        self._session = session
        self._done: set[str] = set()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.settle(trial, None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if trial.status == "ERROR":
            self.settle(trial, {"type": "RayError", "text": str(getattr(trial, "error_file", None) or "it has died")})

    def settle(self, trial: Any, reason: dict[str, str] | None) -> None:
        """Record the end of a trial, unless it has done so itself, and print its line."""
        session, identifier = self._session, str(trial.trial_id)
        if identifier in self._done:
            return
        self._done.add(identifier)
        session.number = session.directory.number_of(identifier)
        known = next((one for one in session.read().trials if one.number == session.number), None)
        if known is not None and known.is_finished:
            outcome = Outcome(known.state, known.values, known.reason, known.step, known.steps or 0)
            outcome.seconds, outcome.params = known.seconds or 0.0, known.params
            outcome.is_best = known.weights is not None
            session.display.end_trial(session.number, outcome, outcome.params, is_best=outcome.is_best)
            return
        curve = known.curve if known is not None else []
        outcome = Outcome(FAILED if reason else PRUNED, curve[-1].values if curve else None, reason)
        outcome.step, outcome.steps = curve[-1].step if curve else 0, (known.steps if known is not None else 0) or 0
        outcome.seconds = float((trial.last_result or {}).get("time_total_s", 0.0))
        outcome.params = dict(trial.config)
        end_trial(session, outcome)


def _end_lost_trials(session: SearchSession, known: set[str]) -> None:
    """Record the end of trials that Ray had not stored yet when a search was killed: it has begun others for them."""
    for one in session.read().trials:
        if not one.is_finished and one.id not in known:
            session.number = one.number
            reason = {"type": "Killed", "text": "the search was killed before Ray had stored this trial"}
            outcome = Outcome(FAILED, reason=reason, step=one.curve[-1].step if one.curve else 0, steps=one.steps or 0)
            outcome.params = one.params
            end_trial(session, outcome)


# ---- in a worker ---------------------------------------------------------------------------------------------------


def _train_trial(config: dict[str, Any], sent: bytes, has_names: bool) -> None:
    """Train one trial in a process of Ray's."""
    if has_names:  # a script under `ostinato exec` may have modules of its own, which are imported with the trainer
        install_names()
    trainer, search = cloudpickle.loads(sent)
    os.chdir(search["directory"])
    set_values(trainer.args, {"output_dir": search["output_dir"]})
    trainer.create_accelerator_and_postprocess()
    trainer.hp_search_backend = HPSearchBackend.RAY
    session = SearchSession(trainer, search["space"], search["directions"], search["num_trials"], "ray", is_quiet=True)
    session.open_study(search["study"])
    session.trial_id = str(tune.get_context().get_trial_id())
    number = session.directory.number_of(session.trial_id)
    known = next((one for one in session.read().trials if one.number == number), None)
    # The search was killed before Ray knew. One that is pruned may be paused by a scheduler: it goes on.
    if known is not None and known.state in (COMPLETE, FAILED):
        _report_last(session, known.values)
        return
    ended: list[bool] = []

    def conclude() -> None:
        if not ended:
            ended.append(True)
            end_trial(session, conclude_stopped_trial(session))

    session.is_stopped_by_library, session.conclude = search["has_scheduler"], conclude
    given = tune.get_checkpoint()
    with keep_session(session):
        checkpoint = None if given is None else find(given.to_directory())
        try:
            outcome = run_trial(session, dict(config), number, checkpoint)
        except SystemExit:  # Ray has stopped the trial while it reported
            conclude()
            raise
        if not ended:
            end_trial(session, outcome)
        if not session.has_reported:
            _report_last(session, outcome.values)


def _report_last(session: SearchSession, values: Sequence[float] | None) -> None:
    """Report the objective of a trial that has reported nothing; NaN if it failed, as Ray takes none without one."""
    count = len(session.directions)
    tune.report(dict(zip(name_objectives(count), values or [math.nan] * count, strict=True)))
