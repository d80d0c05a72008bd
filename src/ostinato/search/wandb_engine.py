"""Sweeps of wandb: its server, or its local controller, proposes the values; trials are trained in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import wandb

from ..core.errors import ConfigError
from ..core.notices import note_once
from ..core.outputs import BestRun
from ..journal.study_record import COMPLETE, FAILED, PRUNED
from ..trackers.base import rewrite_logs
from ..trackers.wandb import WandbCallback
from . import search_errors
from .best_trial import build_best_run
from .fixed_trial import ANNOTATIONS
from .host import SearchHost
from .objective_value import list_values
from .parameter import Parameter
from .search_space import list_parameters
from .session import SearchSession
from .shared_trial import end_others, follow, send_trial
from .trial_runner import check_outcomes, end_trial, run_trial

_OPTIONS = ("sweep_id", "project", "entity", "name", "metric")
_DEFAULT_METRIC = "eval/loss"


def run(trainer: SearchHost, session: SearchSession, options: Mapping[str, Any]) -> BestRun:
    """Let an agent train the trials of a sweep, and return the best."""
    session.metric_name = str(options.get("metric") or _DEFAULT_METRIC)
    if not session.is_leader:
        return follow(session, lambda number, params: params)
    _check_options(session, options)
    place = {name: options[name] for name in ("project", "entity") if options.get(name)}
    sweep = options.get("sweep_id") or _create_sweep(_build_sweep(session, options), place)
    session.open_study(sweep)
    session.begin("sweep")
    failures: list[BaseException] = []

    def train() -> None:
        if failures:  # the agent asks for as many trials as it was told to
            return
        try:
            _train_trial(session)
        except BaseException as error:  # the agent would only print it
            failures.append(error)
            raise

    wandb.agent(sweep, function=train, count=session.num_trials, **place)
    if failures:
        raise failures[0]
    record = session.read()
    check_outcomes(record)
    best = build_best_run(record.find_best()[0])
    named = {**best.hyperparameters, **_build_annotations(session)}
    best = best._replace(hyperparameters=named, run_summary=sweep)
    end_others(session, best)
    return best


def report_metric(session: SearchSession, metrics: Mapping[str, Any], values: Sequence[float]) -> None:
    """Send the metric of a sweep to its run, which may be ended for it: that of this name, or else the objective."""
    session.has_reported = True
    callbacks = session.trainer.callback_handler.callbacks
    named, name = rewrite_logs(metrics), session.metric_name
    is_logged = name in named and any(isinstance(one, WandbCallback) for one in callbacks)
    if session.is_leader and wandb.run is not None and not is_logged:
        wandb.run.log({name: named.get(name, values[0])})


def _check_options(session: SearchSession, options: Mapping[str, Any]) -> None:
    for name in options:
        if name == "anonymous":
            note_once("anonymous has no effect: wandb asks who you are when it logs in (wandb login)")
        elif name not in _OPTIONS:
            raise search_errors.unknown_option(name, _OPTIONS, "wandb")
        elif not isinstance(options[name], (str, type(None))):  # the agent would wait for such a sweep for ever
            raise search_errors.wrong_option(name, options[name], "no text", f"{name}='...'")
    if len(session.directions) > 1:
        raise ConfigError(
            what="a sweep of wandb has one objective",
            why=f"direction={list(session.directions)} has {len(session.directions)}",
            fix="use backend='optuna', or combine the objectives in compute_objective",
        )
    mode = os.environ.get("WANDB_MODE", "")
    if mode in ("offline", "disabled", "dryrun"):
        raise ConfigError(
            what=f"a sweep of wandb with WANDB_MODE={mode}",
            why="the values are proposed by wandb's server",
            fix="unset WANDB_MODE and log in, or use backend='optuna'",
        )


def _create_sweep(sweep: dict[str, Any], place: Mapping[str, Any]) -> str:
    try:
        return wandb.sweep(sweep, **place)
    except wandb.Error as error:
        raise ConfigError(
            what="wandb has not made a sweep", why=str(error), fix="log in: wandb login; or use backend='optuna'"
        ) from error


def _train_trial(session: SearchSession) -> None:
    """Train one trial, in the thread that wandb's agent has made for it."""
    trainer, run = session.trainer, wandb.run or wandb.init()
    assert run is not None
    session.trial_id = run.id
    values = dict(run.config.items())
    run.config.update(_build_annotations(session))
    number = session.directory.number_of(run.id)
    send_trial(session, number, values)
    outcome = run_trial(session, values, number)
    if _is_stopped() and outcome.state == FAILED:
        outcome.state, outcome.reason = PRUNED, None
        outcome.values = None if trainer.objective is None else list_values(trainer.objective)
    if outcome.state == COMPLETE and not session.has_reported:  # evaluated after training alone
        report_metric(session, session.metrics, outcome.values or ())
    end_trial(session, outcome)
    if wandb.run is not None:
        wandb.run.finish(exit_code=1 if outcome.state == FAILED else 0)


def _is_stopped() -> bool:
    """Return whether the server has ended this trial: the agent raises an Exception in its thread, and marks it."""
    return getattr(threading.current_thread(), "_terminated", False)


def _build_annotations(session: SearchSession) -> dict[str, Any]:
    """Return what transformers adds to the configuration of a run."""
    return dict(zip(ANNOTATIONS, ({}, session.metric_name), strict=True))


def _build_sweep(session: SearchSession, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a sweep: the one that was given, or one of the same space."""
    given = session.space.given
    given = given(None) if callable(given) and session.space.parameters is not None else given
    if isinstance(given, Mapping) and isinstance(given.get("parameters"), Mapping):
        sweep = dict(given)
    else:
        sweep = {"method": "random", "parameters": {one.name: _build(one) for one in list_parameters(session.space)}}
    sweep["metric"] = {"name": session.metric_name, "goal": session.directions[0]}
    if options.get("name"):
        sweep["name"] = options["name"]
    return sweep


def _build(one: Parameter) -> dict[str, Any]:
    if one.kind == "choice":
        return {"values": list(one.choices)}
    ends: dict[str, Any] = {"min": one.low, "max": one.high}
    if one.kind == "int":
        return {**ends, "distribution": "q_log_uniform_values" if one.log else "int_uniform"}
    if one.step is not None:
        return {**ends, "distribution": "q_uniform", "q": one.step}
    return {**ends, "distribution": "log_uniform_values" if one.log else "uniform"}
