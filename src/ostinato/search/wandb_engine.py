"""Sweeps of wandb: its server, or its local controller, proposes the values; trials are trained in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import wandb

from ..core.errors import ConfigError
from ..core.notices import note_once
from ..core.outputs import BestRun
from ..journal.study_record import COMPLETE, FAILED
from . import search_errors
from .best_trial import build_best_run
from .host import SearchHost
from .parameter import Parameter
from .search_space import list_parameters
from .session import SearchSession
from .trial_runner import check_outcomes, end_trial, run_trial

_OPTIONS = ("sweep_id", "project", "entity", "name", "metric")


def run(trainer: SearchHost, session: SearchSession, options: Mapping[str, Any]) -> BestRun:
    """Let an agent train the trials of a sweep, and return the best."""
    for name in options:
        if name == "anonymous":
            note_once("anonymous has no effect: wandb asks who you are when it logs in (wandb login)")
        elif name not in _OPTIONS:
            raise search_errors.unknown_option(name, _OPTIONS, "wandb")
    if len(session.directions) > 1:
        raise ConfigError(
            what="a sweep of wandb has one objective",
            why=f"direction={list(session.directions)} has {len(session.directions)}",
            fix="use backend='optuna', or combine the objectives in compute_objective",
        )
    metric = str(options.get("metric") or "objective")
    place = {name: options[name] for name in ("project", "entity") if options.get(name)}
    _check_server()
    sweep = options.get("sweep_id") or _create_sweep(_build_sweep(session, options, metric), place)
    session.begin("sweep")
    failures: list[BaseException] = []

    def train() -> None:
        try:
            _train_trial(session, metric)
        except BaseException as error:  # the agent would only print it
            failures.append(error)
            raise

    wandb.agent(sweep, function=train, count=session.num_trials, **place)
    if failures:
        raise failures[0]
    record = session.read()
    check_outcomes(record)
    return build_best_run(record.find_best()[0])._replace(run_summary={"sweep_id": sweep})


def _check_server() -> None:
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


def _train_trial(session: SearchSession, metric: str) -> None:
    trainer, run = session.trainer, wandb.run or wandb.init()
    assert run is not None
    session.trial_id = run.id
    values = dict(run.config.items())
    outcome = run_trial(session, values, session.directory.number_of(run.id))
    if outcome.state == COMPLETE and outcome.values is not None:
        run = wandb.run or run
        run.log({metric: outcome.values[0]})
    end_trial(session, outcome)
    if trainer.is_world_process_zero() and wandb.run is not None:
        wandb.run.finish(exit_code=1 if outcome.state == FAILED else 0)


def _build_sweep(session: SearchSession, options: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return the configuration of a sweep: the one that was given, or one of the same space."""
    given = session.space.given
    given = given(None) if callable(given) and session.space.parameters is not None else given
    if isinstance(given, Mapping) and isinstance(given.get("parameters"), Mapping):
        sweep = dict(given)
    else:
        sweep = {"method": "random", "parameters": {one.name: _build(one) for one in list_parameters(session.space)}}
    sweep["metric"] = {"name": metric, "goal": session.directions[0]}
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
