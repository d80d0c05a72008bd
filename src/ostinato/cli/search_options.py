"""The options of a search on the command line, and the search that takes the place of a script's `train()`."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigError, OstinatoError
from .script_runner import FAILED, NEVER_STARTED, refuse, stop_at_start

if TYPE_CHECKING:
    from ..trainer import Trainer

_STARTS = ("train", "hyperparameter_search")


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every search has."""
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="the number of trials in all (default 20)")
    parser.add_argument("--backend", choices=("optuna", "ray", "wandb"), help="by default the first that is installed")
    parser.add_argument(
        "--direction",
        action="append",
        choices=("minimize", "maximize"),
        help="of the objective; may be repeated, one for each (default: minimize, or as greater_is_better says)",
    )
    parser.add_argument(
        "--objective",
        action="append",
        metavar="METRIC",
        help="a metric of the evaluation; may be repeated (default: metric_for_best_model, or the loss)",
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="begin no trial after that time (Optuna)")
    parser.add_argument("--sampler-seed", type=int, metavar="N", help="the seed of the sampler (Optuna)")
    parser.add_argument("--plan", action="store_true", help="say what would be tried, and how long a trial takes")


def run_search(start: Callable[[], int], name: str, space: str, options: argparse.Namespace) -> int:
    """Run `start` until its trainer starts to train, and search instead; return the exit code."""
    failures: list[OstinatoError] = []
    searched: list[bool] = []

    def search(trainer: Trainer) -> None:
        try:
            prepare_trainer(trainer)
            (_print_plan if options.plan else _search)(trainer, space, options)
        except OstinatoError as error:
            failures.append(error)
        searched.append(True)

    with stop_at_start(search, _STARTS):
        code = start()
    if failures:
        return refuse(str(failures[0]), FAILED)
    if not searched:
        return code or refuse(
            f"{name} ended before its trainer started to train\n  why: the search takes the place of that call\n"
            "  fix: call trainer.train() in the script, and pass the options that it needs after --",
            NEVER_STARTED,
        )
    return 0


def prepare_trainer(trainer: Trainer) -> None:
    """Let every trial begin with a copy of the trainer's model, unless the trainer makes models itself.

    Raises:
        ConfigError: The trainer has an optimizer, which belongs to its model, or a model that cannot be copied.
    """
    if trainer._makes_models():
        return
    if trainer.optimizer is not None or trainer.lr_scheduler is not None:
        raise ConfigError(
            what="the trainer was given an optimizer or a schedule",
            why="it belongs to one model, and every trial has its own",
            fix="leave optimizers out: optim, learning_rate and lr_scheduler_type choose them",
        )
    try:
        model = copy.deepcopy(trainer.model)
    except Exception as error:
        raise ConfigError(
            what=f"{type(trainer.model).__name__} cannot be copied for every trial",
            why=str(error),
            fix="let the script pass model_init=... to the trainer",
        ) from error
    trainer.model_init = lambda: copy.deepcopy(model)


def _search(trainer: Trainer, space: str, options: argparse.Namespace) -> None:
    objective, direction = _choose_objective(trainer, options)
    extra: dict[str, Any] = {}
    if options.timeout is not None:
        extra["timeout"] = options.timeout
    if options.sampler_seed is not None:
        import optuna  # noqa: PLC0415 - optional

        several = len(options.direction or ()) > 1
        kind = optuna.samplers.NSGAIISampler if several else optuna.samplers.TPESampler
        extra["sampler"] = kind(seed=options.sampler_seed)
    trainer.hyperparameter_search(
        space,
        objective,
        n_trials=options.trials,
        direction=direction,
        backend=options.backend,
        **extra,
    )


def _choose_objective(trainer: Trainer, options: argparse.Namespace) -> tuple[list[str], str | list[str]]:
    """Return the metrics and their directions: without any, the one that decides which model is best, or the loss."""
    metric = trainer.args.metric_for_best_model
    given = options.direction
    if options.objective:
        directions = given or ["minimize"]
    else:
        directions = given or ["maximize" if metric is not None and trainer.args.greater_is_better else "minimize"]
    return options.objective or [metric or "loss"], directions[0] if len(directions) == 1 else directions


def _print_plan(trainer: Trainer, space: str, options: argparse.Namespace) -> None:
    from ..search.search_plan import describe_search  # noqa: PLC0415

    objective, direction = _choose_objective(trainer, options)
    print(describe_search(trainer, space, objective, options.trials, direction))
