"""What can turn out to be missing or wrong while a trainer is used: what happened, why, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import CheckpointError, ConfigError, NotSupportedError
from .adopt import WrongTypeError
from .check_trainer import NoSuchMetricError


class NoSuchSetError(ConfigError, KeyError):
    """An evaluation set that eval_dataset does not hold (a dict raises KeyError here)."""

    def __str__(self) -> str:  # KeyError would print a repr
        return Exception.__str__(self)


def tokenizer_twice() -> WrongTypeError:
    return WrongTypeError(
        what="processing_class and tokenizer are both given",
        why="tokenizer is the old name of processing_class",
        fix="leave tokenizer out",
    )


def model_init_takes(count: int) -> ConfigError:
    return ConfigError(
        what="model_init should have 0 or 1 argument",
        why=f"it has {count}; it is called with nothing, or with the trial of a search",
        fix="bind the others: model_init=functools.partial(make_model, config)",
    )


def model_init_returns_nothing() -> ConfigError:
    return ConfigError(
        what="model_init should not return None", why="training needs the model it makes", fix="return the model"
    )


def no_gradient_checkpointing(model: Any) -> ConfigError:
    return ConfigError(
        what=f"gradient_checkpointing=True, but {type(model).__name__} cannot do it",
        why="the model has no gradient_checkpointing_enable()",
        fix="wrap its blocks in torch.utils.checkpoint.checkpoint yourself, or unset the argument",
    )


def no_train_dataset() -> ConfigError:
    return ConfigError(
        what="Trainer: training requires a train_dataset",
        why="train() was called, and none was given",
        fix="pass train_dataset=... to Trainer",
    )


def no_eval_dataset() -> ConfigError:
    return ConfigError(
        what="Trainer: evaluation requires an eval_dataset",
        why="evaluate() was called, and none was given",
        fix="pass eval_dataset=... to Trainer or to evaluate()",
    )


def no_optimizer() -> ConfigError:
    return ConfigError(
        what="Trainer optimizer is None, please make sure you have setup the optimizer before",
        why="it is made when training starts",
        fix="call create_optimizer() first",
    )


def no_such_metric(name: str, metrics: Mapping[str, Any]) -> NoSuchMetricError:
    return NoSuchMetricError(
        what=f"metric_for_best_model={name!r} is not among the evaluation's metrics",
        why=f"the evaluation returned {sorted(metrics)}",
        fix="name one of these (the prefix eval_ may be left out)",
    )


def no_checkpoint(directory: Path) -> CheckpointError:
    return CheckpointError(
        what=f"No valid checkpoint found in output directory ({directory})",
        why="resume_from_checkpoint=True takes the newest whole checkpoint-N directory, and there is none",
        fix="check output_dir, or start afresh with resume_from_checkpoint=None",
    )


def no_such_checkpoint(wanted: str, home: Path) -> CheckpointError:
    """A path that is no directory: say what there is beside it, and in the output directory."""
    near = sorted({*_checkpoints_in(Path(wanted).parent), *_checkpoints_in(home)})
    return CheckpointError(
        what=f"there is no checkpoint {wanted}",
        why="it is not a directory",
        fix=f"there is {', '.join(near[:3])}; or resume_from_checkpoint=True for the newest in output_dir"
        if near
        else "check the path, or start afresh with resume_from_checkpoint=None",
    )


def _checkpoints_in(directory: Path) -> list[str]:
    return [str(found) for found in directory.glob("checkpoint-*") if found.is_dir()]


def no_such_evaluation_set(name: str, sets: Any) -> NoSuchSetError:
    known = list(sets) if isinstance(sets, Mapping) else []
    near = difflib.get_close_matches(name, known, n=1)
    return NoSuchSetError(
        what=f"there is no evaluation set {name!r}",
        why=f"eval_dataset holds {', '.join(map(repr, known))}" if known else "eval_dataset is not a dict of sets",
        fix=f"did you mean {near[0]!r}?" if near else "name one of them, or pass the data set itself",
    )


def packing_of_a_stream() -> NotSupportedError:
    return NotSupportedError(
        what="packing=True with a training set that can only be iterated over",
        why="its first rows are tried before training starts, and a stream cannot be read twice",
        fix="pass a data set with numbered rows, or use data_collator=DataCollatorWithFlattening()",
    )


def no_number_of_batches(loader: Any) -> ConfigError:
    return ConfigError(
        what="nobody knows how many batches an epoch has: max_steps has to be specified",
        why=f"the {type(loader).__name__} of the training set has no length, perhaps because its sampler has none",
        fix="set max_steps, or give the sampler a __len__",
    )


def budget_and_own_order(tokens: int, name: str) -> ConfigError:
    return ConfigError(
        what=f"max_tokens_per_batch={tokens} with {name}._get_train_sampler",
        why="rows of similar length are put together, in an order that a sampler of rows cannot decide",
        fix="leave max_tokens_per_batch out, or pass batch_sampler=... with your own batches",
    )


def skipping_needs_rows(what: str) -> NotSupportedError:
    return NotSupportedError(
        what=f"skip_bad_rows=True with {what}",
        why="bad rows are found one by one, by their numbers in one data set",
        fix="leave it out; the error says which row cannot be read",
    )


def no_search() -> NotSupportedError:
    return NotSupportedError(
        what="hyperparameter_search is not there yet",
        why="the search room is still empty",
        fix="drive Optuna yourself: study.optimize(lambda trial: make_trainer(trial).train().training_loss)",
    )


def no_hub() -> NotSupportedError:
    return NotSupportedError(
        what="push_to_hub is not there yet",
        why="the hub integration is still to come",
        fix="save_model(DIR), then huggingface_hub.upload_folder(repo_id=..., folder_path=DIR)",
    )


def no_model_card() -> NotSupportedError:
    return NotSupportedError(
        what="create_model_card is not there yet",
        why="the hub integration is still to come",
        fix="write README.md with huggingface_hub.ModelCard",
    )
