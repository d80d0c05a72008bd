"""Contradictions between the arguments and what the trainer was given, found before any data is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.choices import IntervalStrategy
from ..core.errors import ConfigError
from ..core.tree import has_length

if TYPE_CHECKING:
    from .training_args import TrainingArguments


class NoModelError(ConfigError, RuntimeError):
    """Neither a model nor a way to make one (transformers raises RuntimeError here)."""


def check_model(model: Any, model_init: Any) -> None:
    """Exactly one of a model and a function that makes one."""
    if model is None and model_init is None:
        raise NoModelError(
            what="Trainer requires either a model or model_init argument",
            why="neither was given",
            fix="pass model=..., or model_init=lambda: ... to make a fresh one for every train()",
        )
    if model is not None and model_init is not None:
        raise NoModelError(
            what="Trainer requires either a model or model_init argument, but not both",
            why="model_init makes a fresh model when training starts, and would replace the one given",
            fix="leave one of them out",
        )


def check_trainer(args: TrainingArguments, train_dataset: Any, eval_dataset: Any) -> None:
    """What the arguments ask for must be possible with what was given."""
    if args.eval_strategy != IntervalStrategy.NO and eval_dataset is None:
        raise ConfigError(
            what=f"You have set `args.eval_strategy` to {args.eval_strategy} but you didn't pass an `eval_dataset` "
            "to `Trainer`",
            why="there is nothing to evaluate on",
            fix="pass eval_dataset=..., or set eval_strategy='no'",
        )
    if train_dataset is not None and args.max_steps <= 0 and not has_length(train_dataset):
        raise ConfigError(
            what="The train_dataset does not implement __len__, max_steps has to be specified",
            why="the number of steps and the learning-rate schedule follow from the length of the data",
            fix="set max_steps, or give the data set a __len__",
        )


def check_optimizers(optimizers: Any, optimizer_cls_and_kwargs: Any, model_init: Any) -> None:
    """An optimizer belongs to the parameters of one model."""
    optimizer, _ = optimizers
    if optimizer is not None and optimizer_cls_and_kwargs is not None:
        raise ConfigError(
            what="Passing both `optimizers` and `optimizer_cls_and_kwargs` arguments is incompatible",
            why="both say which optimizer to use",
            fix="leave one of them out",
        )
    if model_init is not None and any(part is not None for part in optimizers):
        raise NoModelError(
            what="Passing a `model_init` is incompatible with providing the `optimizers` argument",
            why="model_init makes a new model when training starts, whose parameters your optimizer does not hold",
            fix="subclass Trainer and override create_optimizer_and_scheduler, or pass optimizer_cls_and_kwargs",
        )
