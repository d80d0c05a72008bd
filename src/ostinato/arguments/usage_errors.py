"""The errors of using a trainer: one function per error, which returns it with its cause and a fix."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.choices import ResumeMode
from ..core.errors import CheckpointError, ConfigError, NotSupportedError
from .from_transformers import WrongTypeError
from .validate_trainer import NoSuchMetricError


class NoSuchSetError(ConfigError, KeyError):
    """An evaluation set that is not in eval_dataset (a dict raises KeyError here)."""

    def __str__(self) -> str:  # KeyError would print a repr
        return Exception.__str__(self)


class NoGenerationError(ConfigError, AttributeError):
    """A model or a config with which text cannot be generated (Python raises AttributeError here)."""


class UnreadableGenerationError(ConfigError, OSError):
    """A generation config that cannot be read (transformers raises OSError here)."""

    def __str__(self) -> str:  # OSError would print its own form
        return Exception.__str__(self)


class ProcessesMissingError(ConfigError, RuntimeError):
    """Processes that should train together do not find one another (torch raises RuntimeError here)."""


def processes_missing(ranks: Sequence[int], seconds: float) -> ProcessesMissingError:
    return ProcessesMissingError(
        what=f"waited {seconds:g} seconds for process {', '.join(map(str, ranks))}",
        why="every process that the launcher announced has to join before training begins",
        fix="look for an error of that process above; if it only takes longer to start, raise ddp_timeout",
    )


def duplicate_tokenizer() -> WrongTypeError:
    return WrongTypeError(
        what="processing_class and tokenizer are both given",
        why="tokenizer is the old name of processing_class",
        fix="leave tokenizer out",
    )


def wrong_model_init_signature(count: int) -> ConfigError:
    return ConfigError(
        what="model_init should have 0 or 1 argument",
        why=f"it has {count}; it is called without arguments, or with the trial of a search",
        fix="bind the others: model_init=functools.partial(make_model, config)",
    )


def model_init_returns_nothing() -> ConfigError:
    return ConfigError(
        what="model_init should not return None", why="training needs the model", fix="return the model"
    )


def no_gradient_checkpointing(model: Any) -> ConfigError:
    return ConfigError(
        what=f"gradient_checkpointing=True, but {type(model).__name__} does not support it",
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
        why="it is created when training starts",
        fix="call create_optimizer() first",
    )


def no_such_metric(name: str, metrics: Mapping[str, Any]) -> NoSuchMetricError:
    return NoSuchMetricError(
        what=f"metric_for_best_model={name!r} is not among the evaluation's metrics",
        why=f"the evaluation returned {sorted(metrics)}",
        fix="name one of these (the prefix eval_ may be left out)",
    )


def no_checkpoint(directory: Path, damaged: Sequence[str] = ()) -> CheckpointError:
    return CheckpointError(
        what=f"No valid checkpoint found in output directory ({directory})",
        why="resume_from_checkpoint=True takes the newest complete checkpoint-N directory, and "
        + (f"all are damaged: {'; '.join(damaged)}" if damaged else "there is none"),
        fix="name another checkpoint: resume_from_checkpoint=PATH; or start a new run: resume_from_checkpoint=None"
        if damaged
        else "check output_dir, or start a new run with resume_from_checkpoint=None",
    )


def resume_mode_without_checkpoint(mode: str) -> ConfigError:
    return ConfigError(
        what=f"resume_mode={ResumeMode(mode).value!r} without a checkpoint",
        why="it decides what is restored from a checkpoint, and resume_from_checkpoint is not set",
        fix="pass resume_from_checkpoint=PATH, or True for the newest in output_dir",
    )


def nothing_to_extend(checkpoint: str, *, planned: int, now: int) -> ConfigError:
    return ConfigError(
        what=f"resume_mode='extend', but the run of {checkpoint} does not become longer",
        why=f"it was planned for {planned} steps, and the arguments make {now}",
        fix=f"set max_steps above {planned}, or a larger num_train_epochs; or leave resume_mode out",
    )


def no_such_checkpoint(wanted: str, output_dir: Path) -> CheckpointError:
    """Return the error for a path that is not a directory, with checkpoints that exist."""
    near = sorted({*_list_checkpoints(Path(wanted).parent), *_list_checkpoints(output_dir)})
    return CheckpointError(
        what=f"Can't find a valid checkpoint at {wanted}",
        why="it is not a directory",
        fix=f"there is {', '.join(near[:3])}; or resume_from_checkpoint=True for the newest in output_dir"
        if near
        else "check the path, or start a new run with resume_from_checkpoint=None",
    )


def _list_checkpoints(directory: Path) -> list[str]:
    return [str(found) for found in directory.glob("checkpoint-*") if found.is_dir()]


def no_steps_to_verify(steps: int) -> ConfigError:
    return ConfigError(
        what=f"verify_resume(steps={steps}) compares nothing",
        why="it is the number of steps before a checkpoint, and of those compared after it",
        fix="leave steps out, or set it to 1 or more",
    )


def resume_not_verifiable() -> NotSupportedError:
    return NotSupportedError(
        what="verify_resume cannot undo its steps here",
        why="the training set, the sampler or the collator holds an iterator, which cannot be rewound",
        fix="create the iterator in __iter__, or verify with a copy of the data",
    )


def training_ended_early(steps: int) -> ConfigError:
    return ConfigError(
        what=f"training ended within {steps} steps, before anything could be compared",
        why="the data ran out, or a callback stopped it",
        fix="call verify_resume(steps=1), or use more rows",
    )


def no_such_evaluation_set(name: str, sets: Any) -> NoSuchSetError:
    known = list(sets) if isinstance(sets, Mapping) else []
    near = difflib.get_close_matches(name, known, n=1)
    return NoSuchSetError(
        what=f"there is no evaluation set {name!r}",
        why=f"eval_dataset holds {', '.join(map(repr, known))}" if known else "eval_dataset is not a dict of sets",
        fix=f"did you mean {near[0]!r}?" if near else "name one of them, or pass the data set itself",
    )


def cannot_generate(model: Any) -> NoGenerationError:
    return NoGenerationError(
        what=f"predict_with_generate=True, but {type(model).__name__} cannot generate",
        why="the model has no generate()",
        fix="load it with AutoModelForSeq2SeqLM or AutoModelForCausalLM, or leave predict_with_generate out",
    )


def no_generation_config(given: Any) -> NoGenerationError:
    return NoGenerationError(
        what=f"generation_config is of type {type(given).__name__}, which is not a generation config",
        why=f"it is {given!r:.60}",
        fix="pass GenerationConfig(...), a dict of its arguments, or the directory, file or hub model that holds one",
    )


def unreadable_generation_config(given: Any, reason: Exception) -> UnreadableGenerationError:
    return UnreadableGenerationError(
        what=f"generation_config={str(given)!r} cannot be read",
        why=_describe_missing(given) or next(iter(str(reason).splitlines()), type(reason).__name__),
        fix="name a directory or file with a generation config, or a model of the hub; or pass GenerationConfig(...)",
    )


def _describe_missing(given: Any) -> str | None:
    """Return what is missing, if the path is on this machine."""
    path = Path(given)
    if path.is_dir():
        return None if (path / "generation_config.json").is_file() else "the directory holds no generation_config.json"
    is_hub_name = len(path.parts) in (1, 2) and not path.is_absolute() and not path.suffix
    return None if path.exists() or is_hub_name else "there is no such file or directory"


def invalid_generation_config(reason: Exception) -> ConfigError:
    lines = [line.removeprefix("- ") for line in str(reason).splitlines() if line.strip()]
    problems = [
        line for line in lines if not line.startswith(("GenerationConfig is invalid", "Fix these", "If you're"))
    ]
    return ConfigError(
        what="generation_config contradicts itself",
        why="; ".join(problems),
        fix="correct it: generation or saving a checkpoint would fail",
    )


def several_texts_per_row(rows: int, texts: int) -> NotSupportedError:
    return NotSupportedError(
        what=f"{texts} texts were generated for {rows} rows, in several processes",
        why="predictions of all processes are put into the order of the dataset, one for each row",
        fix="leave num_return_sequences out, or predict in one process",
    )


def packing_with_stream() -> NotSupportedError:
    return NotSupportedError(
        what="packing=True with a training set that can only be iterated over",
        why="its first rows are checked before training starts, and a stream cannot be read twice",
        fix="pass a dataset with indices, or use data_collator=DataCollatorWithFlattening()",
    )


def unknown_number_of_batches(loader: Any) -> ConfigError:
    return ConfigError(
        what="the number of batches per epoch is not known: max_steps has to be specified",
        why=f"the {type(loader).__name__} of the training set has no length, perhaps because its sampler has none",
        fix="set max_steps, or give the sampler a __len__",
    )


def token_budget_with_own_sampler(tokens: int, name: str) -> ConfigError:
    return ConfigError(
        what=f"max_tokens_per_batch={tokens} with {name}._get_train_sampler",
        why="rows are grouped by length, so that a sampler cannot decide their order",
        fix="leave max_tokens_per_batch out, or pass batch_sampler=... with your own batches",
    )


def skip_bad_rows_with_loader() -> NotSupportedError:
    return NotSupportedError(
        what="skip_bad_rows=True with a DataLoader as train_dataset",
        why="it reads its rows itself, and does not report which of them failed",
        fix="pass its dataset: train_dataset=loader.dataset; or skip bad rows in its dataset",
    )
