"""The main function of all tasks: arguments, rows, model, features, training, evaluation, prediction, results."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ostinato import ConfigError, HfArgumentParser, Trainer, TrainingArguments, set_seed
from ostinato.logging import get_logger
from ostinato.report import write_report

from . import command_output, results
from .catalog import find_implied_options, find_recipe
from .configs import Options, read_options
from .recipe import Recipe, Sample
from .rows import TEST, TRAIN, VALIDATION, Split, import_datasets
from .task_arguments import CommandArguments, DataArguments, ModelArguments

ACTIONS = {TRAIN: "do_train", VALIDATION: "do_eval", TEST: "do_predict"}  # the flag of what is done with rows


@dataclass
class CommandResult:
    """The result of a command."""

    trainer: Trainer
    metrics: dict[str, float] = field(default_factory=dict)
    sample: Sample | None = None


def run(recipe: str | type[Recipe], words: Sequence[str] | None = None) -> CommandResult:
    """Run `ostinato train TASK WORDS...`.

    Args:
        recipe: The name of the task, or a recipe.
        words: The options; by default those of the command line of the process.

    Returns:
        The trainer, the metrics and the sample, if there is one.

    >>> run("text-classification", ["--sample"]).metrics["eval_accuracy"]  # doctest: +SKIP
    0.98
    """
    return run_command(parse_command(recipe, sys.argv[1:] if words is None else words))


def run_command(request: TaskRequest) -> CommandResult:
    """Run a parsed command line."""
    prepared = _prepare_run(request)
    if request.command.plan:
        if prepared.trainer.is_world_process_zero():
            print(command_output.describe_plan(prepared.recipe, prepared.splits, prepared.features, prepared.trainer))  # noqa: T201
        return CommandResult(prepared.trainer)
    result = CommandResult(prepared.trainer, sample=request.sample)
    if request.training.do_train:
        result.metrics |= _train(prepared)
    if request.training.do_eval:
        result.metrics |= _evaluate(prepared)
    if request.training.do_predict:
        result.metrics |= _predict(prepared)
    _refresh_report(prepared)
    if request.training.do_train:
        results.publish(prepared.trainer, results.collect_card_arguments(prepared.recipe, request.model, request.data))
    if request.sample is not None:
        _log(command_output.describe_sample_result(request.sample, result.metrics))
    return result


# ---- arguments ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskRequest:
    """A parsed command line."""

    kind: type[Recipe]
    command: CommandArguments
    data: DataArguments
    model: ModelArguments
    training: TrainingArguments
    sample: Sample | None = None


def parse_command(recipe: str | type[Recipe], words: Sequence[str]) -> TaskRequest:
    """Parse the words of a command line and the files of options that it names.

    The words of a sample come first, then those of files, then those of the command line: the last one counts. What
    the name of the task implies comes before all of them.
    """
    kind = find_recipe(recipe) if isinstance(recipe, str) else recipe
    options = read_options(list(words), _build_parser(kind, exit_on_error=False, allow_abbrev=False))
    options = replace(options, defaults={**find_implied_options(recipe), **options.defaults})
    request = _parse_options(kind, options)
    if not request.command.sample:
        request = request if _names_action(request.training, options) else _choose_actions(request, options)
        _check_actions(request)
        return request
    output_dir = Path(str(request.training.output_dir))
    with request.training.main_process_first(desc="making the sample"):
        sample = kind.write_sample(output_dir / "data")
    more = [word for word in options.words if word not in ("--sample", "--plan")]
    equivalent = shlex.join([*sample.words, "--output_dir", str(output_dir), *more])
    _log(f"--sample runs: ostinato train {kind.name} {equivalent}")
    torch.set_num_threads(1)  # on so small a model, threads lose more by waiting for one another than they gain
    request = replace(_parse_options(kind, replace(options, words=[*sample.words, *options.words])), sample=sample)
    _check_actions(request)
    return request


def _build_parser(kind: type[Recipe], **options: Any) -> HfArgumentParser:
    return HfArgumentParser(
        [CommandArguments, kind.arguments_class, kind.model_arguments_class, kind.training_class],
        prog=f"ostinato train {kind.name}",
        description=f"{kind.summary} Choose the actions (--do_train, --do_eval, --do_predict), the rows "
        "(--train_file, --dataset_name, ...) and the model (--model_name_or_path, or --model_type); "
        "or try it with --sample.",
        **options,
    )


def _parse_options(kind: type[Recipe], options: Options) -> TaskRequest:
    parser = _build_parser(kind)
    # A recipe makes a dry run before a long run, unless it is disabled.
    parser.set_defaults(**{"output_dir": f"runs/{kind.name}", "rehearse": True, **kind.defaults, **options.defaults})
    command, data, model, training = parser.parse_args_into_dataclasses(options.words, look_for_args_file=False)
    return TaskRequest(kind, command, data, model, training)


def _names_action(training: TrainingArguments, options: Options) -> bool:
    """Return whether an action is set. An `eval_strategy` sets `do_eval` too, but that is no choice of actions."""
    named = [word.replace("-", "_").partition("=")[0] for word in options.words if word.startswith("--")]
    is_named = any(name.startswith(("__do_t", "__do_e", "__do_p", "__no_do_")) for name in named)
    return is_named or training.do_train or training.do_predict


def _choose_actions(request: TaskRequest, options: Options) -> TaskRequest:
    """Return the request with every action that it names rows for, if there are any to train on."""
    training = request.training
    with training.main_process_first(desc="finding the rows"):
        purposes = request.kind(request.data, training).list_purposes()
    if TRAIN not in purposes:
        return request
    chosen = [f"--{flag}" for name, flag in ACTIONS.items() if name in purposes]
    without = "" if VALIDATION in purposes else " (there are no rows to evaluate on)"
    _log(f"no action is named: {' '.join(chosen)}, as there are rows for it{without}")
    return _parse_options(request.kind, replace(options, words=[*options.words, *chosen]))


def _check_actions(request: TaskRequest) -> None:
    training = request.training
    if not any(getattr(training, flag) for flag in ACTIONS.values()):
        raise ConfigError(
            what="there is nothing to do",
            why="none of --do_train, --do_eval and --do_predict was given, nor rows to train on",
            fix="add --train_file FILE to train and evaluate, or name an action; "
            f"or try the recipe: ostinato train {request.kind.name} --sample",
        )


# ---- preparation ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreparedRun:
    """A prepared command: the rows, their features, the trainer."""

    recipe: Recipe
    request: TaskRequest
    splits: Mapping[str, Split]
    features: Mapping[str, Any]
    trainer: Trainer


def _prepare_run(request: TaskRequest) -> PreparedRun:
    training = request.training
    recipe = request.kind(request.data, training)
    if training.disable_tqdm or not sys.stderr.isatty():  # a pipe would get every redraw
        import_datasets().disable_progress_bars()
    with training.main_process_first(desc="reading the rows"):
        splits = recipe.read(_list_purposes(training))
    _log(f"{recipe.name}: " + "; ".join(f"{name} {split}" for name, split in splits.items()))
    recipe.inspect_splits(splits)
    set_seed(training.seed)
    model = recipe.build_model(request.model, splits)
    with training.main_process_first(desc="encoding the rows"):
        features = {name: recipe.build_features(split) for name, split in splits.items()}
    trainer = recipe.trainer_class(
        model=model,
        args=training,
        train_dataset=features.get(TRAIN) if training.do_train else None,
        eval_dataset=features.get(VALIDATION) if training.do_eval else None,
        processing_class=recipe.processing_class,
        data_collator=recipe.build_collator(model),
        **recipe.get_trainer_arguments(splits, features),
    )
    return PreparedRun(recipe, request, splits, features, trainer)


def _list_purposes(training: TrainingArguments) -> list[str]:
    return [name for name, flag in ACTIONS.items() if getattr(training, flag)]


# ---- actions --------------------------------------------------------------------------------------------------------


def _train(prepared: PreparedRun) -> dict[str, float]:
    trainer = prepared.trainer
    resume: Any = prepared.request.training.resume_from_checkpoint
    modes = {"true": True, "false": None, "none": None}  # "true": from the last checkpoint there is
    checkpoint = modes.get(str(resume).lower(), resume)
    if checkpoint is None and trainer.is_world_process_zero():
        results.remove_pictures(Path(str(prepared.request.training.output_dir)))
    outcome = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()  # the tokenizer too
    if trainer.is_world_process_zero():
        prepared.recipe.write_model_files(trainer.model, _create_output_dir(prepared))
    metrics = {**outcome.metrics, "train_samples": len(prepared.features[TRAIN])}
    trainer.log_metrics("train", metrics)
    trainer.save_metrics("train", metrics)
    trainer.save_state()
    return metrics


def _evaluate(prepared: PreparedRun) -> dict[str, float]:
    trainer, whole = prepared.trainer, {}
    for name in (name for name in prepared.splits if name.startswith(VALIDATION)):
        features, suffix = prepared.features[name], name.removeprefix(VALIDATION)
        metrics = trainer.evaluate(eval_dataset=features, **prepared.recipe.get_generation_arguments())
        metrics["eval_samples"] = len(features)
        prepared.recipe.add_metrics(metrics, "eval")
        metrics = {f"{key}{suffix}": value for key, value in metrics.items()}
        trainer.log_metrics("eval", metrics)
        whole |= metrics
        if trainer.is_world_process_zero():
            prepared.recipe.write_evaluation_files(prepared.splits[name].rows, _create_output_dir(prepared))
    trainer.save_metrics("eval", whole)
    return whole


def _predict(prepared: PreparedRun) -> dict[str, float]:
    trainer, recipe, whole = prepared.trainer, prepared.recipe, {}
    for name in (name for name in prepared.splits if name.startswith(TEST)):
        features, suffix = prepared.features[name], name.removeprefix(TEST)
        output = recipe.predict(trainer, features, prepared.splits[name].rows)
        metrics = {**output.metrics, "predict_samples": len(features)}
        recipe.add_metrics(metrics, "predict")
        metrics = {f"{key}{suffix}": value for key, value in metrics.items()}
        trainer.log_metrics("predict", metrics)
        whole |= metrics
        if trainer.is_world_process_zero():
            path = results.write_predictions(
                recipe, output, prepared.splits[name].rows, _create_output_dir(prepared), suffix
            )
            _log(f"predictions: {path}")
            for line in recipe.preview_predictions():
                _log(f"  {line}")
    trainer.save_metrics("predict", whole)
    return whole


def _refresh_report(prepared: PreparedRun) -> None:
    """Write the page of the run again if there are pictures for it, which came after the training."""
    output_dir = Path(str(prepared.request.training.output_dir))
    has_pages = (output_dir / "report.html").is_file() and (output_dir / results.PICTURES_NAME).is_dir()
    if has_pages and prepared.trainer.is_world_process_zero():
        write_report(output_dir)


def _create_output_dir(prepared: PreparedRun) -> Path:
    """Return where results are written, and create it: without training it may not exist yet."""
    output_dir = Path(str(prepared.request.training.output_dir))
    output_dir.mkdir(parents=True, exist_ok=True)
    return output_dir


# ---- messages -------------------------------------------------------------------------------------------------------


def _log(text: str) -> None:
    get_logger().info(text)
