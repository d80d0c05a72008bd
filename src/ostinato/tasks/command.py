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

from . import command_output, models, results
from .catalog import find_recipe, implied_options
from .configs import Options, with_config
from .feature_cache import encode_split
from .recipe import Recipe, Sample
from .rows import TEST, TRAIN, VALIDATION, Split, import_datasets
from .task_arguments import CommandArguments, DataArguments, ModelArguments
from .tokenizers import style_of, train_tokenizer


@dataclass
class Finished:
    """The result of a command."""

    trainer: Trainer
    metrics: dict[str, float] = field(default_factory=dict)
    sample: Sample | None = None


def run(recipe: str | type[Recipe], words: Sequence[str] | None = None) -> Finished:
    """Carry out `ostinato train TASK WORDS...`; `words` are those of the command line if none are given.

    >>> run("text-classification", ["--sample"]).metrics["eval_accuracy"]  # doctest: +SKIP
    0.98
    """
    return carry_out(understood(recipe, sys.argv[1:] if words is None else words))


def carry_out(asked: TaskRequest) -> Finished:
    """Carry out a parsed command line."""
    work = _prepared(asked)
    if asked.command.plan:
        if work.trainer.is_world_process_zero():
            print(command_output.plan_of(work.recipe, work.splits, work.features, work.trainer))  # noqa: T201
        return Finished(work.trainer)
    finished = Finished(work.trainer, sample=asked.sample)
    if asked.training.do_train:
        finished.metrics |= _train(work)
    if asked.training.do_eval:
        finished.metrics |= _evaluate(work)
    if asked.training.do_predict:
        finished.metrics |= _predict(work)
    if asked.training.do_train:
        results.publish(work.trainer, results.card_facts(work.recipe, asked.model, asked.data))
    if asked.sample is not None:
        _tell(command_output.verdict(asked.sample, finished.metrics))
    return finished


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


def understood(recipe: str | type[Recipe], words: Sequence[str]) -> TaskRequest:
    """Parse the words of a command line and the files of options that it names.

    The words of a sample come first, then those of files, then those of the command line: the last one counts. What
    the name of the task implies comes before all of them.
    """
    kind = find_recipe(recipe) if isinstance(recipe, str) else recipe
    options = with_config(list(words), _parser(kind, exit_on_error=False, allow_abbrev=False))
    options = replace(options, defaults={**implied_options(recipe), **options.defaults})
    asked = _read(kind, options)
    if not asked.command.sample:
        _check(asked)
        return asked
    home = Path(str(asked.training.output_dir))
    with asked.training.main_process_first(desc="making the sample"):
        sample = kind.write_sample(home / "data")
    more = [word for word in options.words if word not in ("--sample", "--plan")]
    stands_for = shlex.join([*sample.words, "--output_dir", str(home), *more])
    _tell(f"--sample stands for: ostinato train {kind.name} {stands_for}")
    torch.set_num_threads(1)  # on so small a model, threads lose more by waiting for one another than they gain
    asked = replace(_read(kind, replace(options, words=[*sample.words, *options.words])), sample=sample)
    _check(asked)
    return asked


def _parser(kind: type[Recipe], **options: Any) -> HfArgumentParser:
    return HfArgumentParser(
        [CommandArguments, kind.arguments_class, ModelArguments, kind.training_class],
        prog=f"ostinato train {kind.name}",
        description=f"{kind.summary} Say what to do with --do_train, --do_eval, --do_predict, with which rows "
        "(--train_file, --dataset_name, ...) and which model (--model_name_or_path, or --model_type); "
        "or see it work with --sample.",
        **options,
    )


def _read(kind: type[Recipe], options: Options) -> TaskRequest:
    parser = _parser(kind)
    # A recipe makes a dry run before a long run, unless it is disabled.
    parser.set_defaults(**{"output_dir": f"runs/{kind.name}", "rehearse": True, **kind.defaults, **options.defaults})
    command, data, model, training = parser.parse_args_into_dataclasses(options.words, look_for_args_file=False)
    return TaskRequest(kind, command, data, model, training)


def _check(asked: TaskRequest) -> None:
    training = asked.training
    if not (training.do_train or training.do_eval or training.do_predict):
        raise ConfigError(
            what="there is nothing to do",
            why="none of --do_train, --do_eval and --do_predict was given",
            fix=f"add --do_train --do_eval, or see the recipe work: ostinato train {asked.kind.name} --sample",
        )


# ---- preparation ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """A prepared command: the rows, their features, the trainer."""

    recipe: Recipe
    asked: TaskRequest
    splits: Mapping[str, Split]
    features: Mapping[str, Any]
    trainer: Trainer


def _prepared(asked: TaskRequest) -> Work:
    training = asked.training
    recipe = asked.kind(asked.data, training)
    if training.disable_tqdm or not sys.stderr.isatty():  # a pipe would get every redraw
        import_datasets().disable_progress_bars()
    with training.main_process_first(desc="reading the rows"):
        splits = recipe.read(_wanted(training))
    _tell(f"{recipe.name}: " + "; ".join(f"{name} {split}" for name, split in splits.items()))
    recipe.inspect_splits(splits)
    set_seed(training.seed)
    model = _model(recipe, asked.model, splits)
    with training.main_process_first(desc="encoding the rows"):
        features = {name: encode_split(recipe, split) for name, split in splits.items()}
    trainer = recipe.trainer_class(
        model=model,
        args=training,
        train_dataset=features.get(TRAIN) if training.do_train else None,
        eval_dataset=features.get(VALIDATION) if training.do_eval else None,
        processing_class=recipe.tokenizer,
        data_collator=recipe.build_collator(model),
        **recipe.get_trainer_arguments(splits, features),
    )
    return Work(recipe, asked, splits, features, trainer)


def _wanted(training: TrainingArguments) -> list[str]:
    purposes = {TRAIN: training.do_train, VALIDATION: training.do_eval, TEST: training.do_predict}
    return [name for name, is_wanted in purposes.items() if is_wanted]


def _model(recipe: Recipe, asked: ModelArguments, splits: Mapping[str, Split]) -> Any:
    config = recipe.config = models.load_config(asked)
    if asked.train_tokenizer:
        recipe.tokenizer = _trained_tokenizer(recipe, asked, config, splits)
    else:
        recipe.tokenizer = models.load_tokenizer(asked, **recipe.get_tokenizer_arguments())
    if asked.model_name_or_path is None:
        models.fit_config(config, recipe.tokenizer)
    models.settle_padding(recipe.tokenizer, config, asked, is_needed=recipe.needs_padding)
    recipe.prepare_config(config)
    model = recipe.load_model(asked)
    models.fit_embeddings(model, recipe.tokenizer)
    recipe.prepare_model(model)
    return model


def _trained_tokenizer(recipe: Recipe, asked: ModelArguments, config: Any, splits: Mapping[str, Split]) -> Any:
    if TRAIN not in splits:
        raise ConfigError(
            what="--train_tokenizer without --do_train",
            why="the tokenizer is made from the training rows",
            fix="name the tokenizer of the model that was trained: --tokenizer_name DIR",
        )
    rows = splits[TRAIN].rows
    texts = (text for batch in rows.iter(1000) for text in recipe.iterate_texts(batch))
    tokenizer = train_tokenizer(texts, asked.vocab_size, style_of(config, recipe.model_class))
    _tell(f"tokenizer: trained on {splits[TRAIN].source}, {len(tokenizer):,} pieces")
    return tokenizer


# ---- actions --------------------------------------------------------------------------------------------------------


def _train(work: Work) -> dict[str, float]:
    trainer = work.trainer
    resume: Any = work.asked.training.resume_from_checkpoint
    said = {"true": True, "false": None, "none": None}  # "true": from the last checkpoint there is
    outcome = trainer.train(resume_from_checkpoint=said.get(str(resume).lower(), resume))
    trainer.save_model()  # the tokenizer too
    metrics = {**outcome.metrics, "train_samples": len(work.features[TRAIN])}
    trainer.log_metrics("train", metrics)
    trainer.save_metrics("train", metrics)
    trainer.save_state()
    return metrics


def _evaluate(work: Work) -> dict[str, float]:
    trainer, whole = work.trainer, {}
    for name in (name for name in work.splits if name.startswith(VALIDATION)):
        features, suffix = work.features[name], name.removeprefix(VALIDATION)
        metrics = trainer.evaluate(eval_dataset=features, **work.recipe.get_generation_arguments())
        metrics["eval_samples"] = len(features)
        work.recipe.add_metrics(metrics, "eval")
        metrics = {f"{key}{suffix}": value for key, value in metrics.items()}
        trainer.log_metrics("eval", metrics)
        whole |= metrics
        if trainer.is_world_process_zero():
            work.recipe.write_evaluation_files(work.splits[name].rows, _home(work))
    trainer.save_metrics("eval", whole)
    return whole


def _predict(work: Work) -> dict[str, float]:
    trainer, recipe, whole = work.trainer, work.recipe, {}
    for name in (name for name in work.splits if name.startswith(TEST)):
        features, suffix = work.features[name], name.removeprefix(TEST)
        output = recipe.predict(trainer, features, work.splits[name].rows)
        metrics = {**output.metrics, "predict_samples": len(features)}
        recipe.add_metrics(metrics, "predict")
        metrics = {f"{key}{suffix}": value for key, value in metrics.items()}
        trainer.log_metrics("predict", metrics)
        whole |= metrics
        if trainer.is_world_process_zero():
            path = results.write_predictions(recipe, output, work.splits[name].rows, _home(work), suffix)
            _tell(f"predictions: {path}")
    trainer.save_metrics("predict", whole)
    return whole


def _home(work: Work) -> Path:
    """Return where results are written, and create it: without training it may not exist yet."""
    home = Path(str(work.asked.training.output_dir))
    home.mkdir(parents=True, exist_ok=True)
    return home


# ---- messages -------------------------------------------------------------------------------------------------------


def _tell(text: str) -> None:
    get_logger().info(text)
