"""What follows from arguments: value by value what transformers derives from the same ones."""

from __future__ import annotations

import dataclasses
import json
import logging
from enum import Enum
from pathlib import Path

import pytest

from ostinato.arguments.accelerator_config import AcceleratorConfig
from ostinato.arguments.training_args import TrainingArguments
from ostinato.core import notices
from ostinato.core.choices import IntervalStrategy, OptimizerNames, SchedulerType
from ostinato.core.errors import ConfigError
from tests.support.apis import guest, load_library
from tests.support.cpu_arguments import build_arguments

TABLE = [
    {},
    {"output_dir": None},
    {"output_dir": "~/runs"},
    {"output_dir": Path("~/runs")},
    {"output_dir": ""},
    {"eval_strategy": "steps"},
    {"eval_strategy": "steps", "logging_steps": 7},
    {"eval_strategy": "steps", "logging_steps": 0.1},
    {"eval_strategy": "steps", "logging_strategy": "epoch", "logging_steps": 3},
    {"eval_strategy": "steps", "eval_steps": 0},
    {"eval_strategy": "steps", "eval_steps": 0.1},
    {"eval_strategy": "steps", "eval_steps": 2.0},
    {"eval_strategy": "epoch"},
    {"eval_strategy": "epoch", "eval_steps": 2.0},
    {"eval_steps": 1.5},
    {"do_eval": True},
    {"do_train": True, "do_predict": True},
    {"eval_on_start": True},
    {"logging_steps": 2.0},
    {"logging_steps": 1.0},
    {"logging_steps": 0, "logging_strategy": "epoch"},
    {"logging_steps": 1.5, "logging_strategy": "no"},
    {"save_steps": 2.0},
    {"save_steps": 0.2},
    {"save_steps": 0},
    {"save_steps": -1},
    {"save_steps": 1.5, "save_strategy": "epoch"},
    {"save_total_limit": 0},
    {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "epoch"},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 4},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 0.1, "save_steps": 0.3},
    {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "best"},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "metric_for_best_model": "accuracy"},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "metric_for_best_model": "eval_loss"},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "metric_for_best_model": "my_loss"},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "greater_is_better": True},
    {"load_best_model_at_end": True, "eval_strategy": "steps", "save_only_model": True},
    {"metric_for_best_model": "loss"},
    {"metric_for_best_model": "accuracy"},
    {"metric_for_best_model": "loss", "greater_is_better": True},
    {"metric_for_best_model": "accuracy", "greater_is_better": False},
    {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps"},
    {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch", "metric_for_best_model": "acc"},
    {"lr_scheduler_type": "greedy", "eval_strategy": "epoch"},
    {"lr_scheduler_type": "cosine", "optim": "adafactor", "hub_strategy": "end"},
    {"lr_scheduler_kwargs": {}},
    {"lr_scheduler_kwargs": ""},
    {"lr_scheduler_kwargs": '{"a": 1, "b": [1, "2"]}'},
    {"lr_scheduler_kwargs": '{"a": "true", "b": "1.5", "c": {"d": "3"}, "e": "FALSE", "f": "text"}'},
    {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": '{"use_reentrant": "false"}'},
    {"warmup_steps": 0.1},
    {"warmup_steps": 1.5},
    {"report_to": "none"},
    {"report_to": ["none"]},
    {"report_to": []},
    {"debug": []},
    {"debug": None},
    {"include_num_input_tokens_seen": False},
    {"include_num_input_tokens_seen": True},
    {"include_num_input_tokens_seen": "non_padding"},
    {"dataloader_pin_memory": True},
    {"dataloader_num_workers": 2, "dataloader_prefetch_factor": 2, "dataloader_persistent_workers": True},
    {"accelerator_config": {}},
    {"accelerator_config": '{"non_blocking": true}'},
    {"accelerator_config": {"dispatch_batches": False, "even_batches": False}},
    {"bf16": True},
    {"fp16": True},
    {"fp16_full_eval": True},
    {"tf32": False},
    {"max_grad_norm": -1},
    {"hub_token": "secret", "hub_model_id": "a/b", "hub_private_repo": True},
    {"fsdp": "", "deepspeed": {}, "fsdp_config": {"min_num_params": 10}},
    {"trackio_static_space_id": False},
    {"include_for_metrics": ["inputs", "loss"]},
    {"max_steps": 10, "num_train_epochs": 2, "learning_rate": 1},
    {"resume_from_checkpoint": True},
    {"local_rank": 3},
    {"seed": 7, "data_seed": 3, "train_sampling_strategy": "group_by_length"},
    {"dataloader_num_workers": 1, "dataloader_multiprocessing_context": "spawn"},
]


@pytest.fixture(autouse=True)
def fresh_notices():
    notices.forget_notices()


def plain(value):
    if isinstance(value, Enum):
        return value.value
    return {**value.to_dict(), "use_configured_state": None} if hasattr(value, "to_dict") else value


@pytest.mark.parametrize("arguments", TABLE, ids=str)
def test_derived_values_are_those_of_transformers(arguments):
    pytest.importorskip("transformers")
    given = {"output_dir": "out", "use_cpu": True, "disable_tqdm": False, **arguments}
    with guest("transformers"):
        expected = load_library("transformers").TrainingArguments(**given)
        names = [field.name for field in dataclasses.fields(expected)] + ["mixed_precision"]
        theirs = {name: plain(getattr(expected, name)) for name in names}
    ours = TrainingArguments(**given)
    assert {name: plain(getattr(ours, name)) for name in names} == theirs


@pytest.mark.parametrize("arguments", TABLE, ids=str)
def test_settling_twice_changes_nothing(arguments):
    once = build_arguments(**arguments)
    twice = dataclasses.replace(once)
    assert twice == once
    twice.validate()
    assert twice == once


def test_words_become_members_of_enums():
    args = build_arguments(eval_strategy="epoch", lr_scheduler_type="cosine", optim="sgd")
    assert args.eval_strategy is IntervalStrategy.EPOCH
    assert args.lr_scheduler_type is SchedulerType.COSINE
    assert args.optim is OptimizerNames.SGD


def test_members_of_transformers_enums_are_understood():
    utils = pytest.importorskip("transformers.trainer_utils")
    args = build_arguments(eval_strategy=utils.IntervalStrategy.EPOCH, lr_scheduler_type=utils.SchedulerType.COSINE)
    assert args.eval_strategy is IntervalStrategy.EPOCH
    assert args.lr_scheduler_type is SchedulerType.COSINE


def test_quoted_numbers_in_json_become_numbers():
    """transformers leaves "1e-5" and "-1" as texts, on which a schedule fails in the middle of a run."""
    args = build_arguments(
        lr_scheduler_kwargs='{"min_lr": "1e-5", "last_epoch": "-1", "power": ".5", "text": "1_000"}'
    )
    assert args.lr_scheduler_kwargs == {"min_lr": 1e-5, "last_epoch": -1, "power": 0.5, "text": "1_000"}


def test_memory_is_not_pinned_where_there_is_only_a_cpu():
    args = TrainingArguments("out")
    assert args.dataloader_pin_memory is (args.device.type != "cpu")


def test_progress_bars_are_off_when_only_errors_are_logged():
    assert build_arguments().disable_tqdm is False
    before = notices.logger.level
    notices.logger.setLevel(logging.ERROR)
    try:
        assert build_arguments().disable_tqdm is True
        assert build_arguments(disable_tqdm=False).disable_tqdm is False
    finally:
        notices.logger.setLevel(before)


@pytest.mark.parametrize("report_to", ["all", ["all"]])
def test_report_to_all_names_the_trackers(report_to, capsys):
    names = build_arguments(report_to=report_to).report_to
    assert {"csv", "jsonl"} <= set(names)
    assert f"logs are sent to {', '.join(names)}" in capsys.readouterr().err


def test_report_to_none(capsys):
    assert build_arguments(report_to=None).report_to == []
    assert "no tracker" in capsys.readouterr().err


def test_the_accelerator_config_can_be_a_file_a_dict_or_an_object(tmp_path):
    path = tmp_path / "accelerator.json"
    path.write_text(json.dumps({"non_blocking": True}))
    expected = AcceleratorConfig(non_blocking=True)
    assert build_arguments(accelerator_config=str(path)).accelerator_config == expected
    assert build_arguments(accelerator_config={"non_blocking": True}).accelerator_config == expected
    assert build_arguments(accelerator_config=expected).accelerator_config is expected


def test_the_accelerator_config_of_transformers_is_understood():
    tools = pytest.importorskip("transformers.trainer_pt_utils")
    with guest("transformers"):
        given = tools.AcceleratorConfig(non_blocking=True)
    assert build_arguments(accelerator_config=given).accelerator_config == AcceleratorConfig(non_blocking=True)
    names = [field.name for field in dataclasses.fields(given)]
    assert [field.name for field in dataclasses.fields(AcceleratorConfig)] == names


@pytest.mark.parametrize("given", ["missing.json", 3, {"splitbatches": True}])
def test_an_accelerator_config_that_cannot_be_read_is_named(given):
    with pytest.raises(ConfigError, match="accelerator_config"):
        build_arguments(accelerator_config=given)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_precision_of_the_launcher_is_followed(monkeypatch, capsys, precision):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", precision)
    args = build_arguments()
    assert (args.bf16, args.fp16) == (precision == "bf16", precision == "fp16")
    assert args.mixed_precision == precision
    assert f"{precision}=True" in capsys.readouterr().err


def test_the_precision_of_the_launcher_does_not_overrule_an_argument(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert build_arguments(fp16=True).mixed_precision == "fp16"
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    assert build_arguments().mixed_precision == "no"


def test_the_compiler_of_the_launcher_is_followed(monkeypatch, capsys):
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "AOT_EAGER")
    args = build_arguments()
    assert (args.torch_compile, args.torch_compile_backend) == (True, "aot_eager")
    assert "torch_compile=True" in capsys.readouterr().err
    assert build_arguments(torch_compile_backend="eager").torch_compile_backend == "eager"


@pytest.mark.parametrize("arguments", [{"torch_compile": True}, {"torch_compile_mode": "reduce-overhead"}], ids=str)
def test_compiling_is_left_to_inductor(arguments):
    args = build_arguments(**arguments)
    assert (args.torch_compile, args.torch_compile_backend) == (True, "inductor")
    assert not build_arguments().torch_compile and build_arguments().torch_compile_backend is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"output_dir": None}, "trainer_output"),
        ({"eval_strategy": "steps", "logging_steps": 7}, "logging_steps=7"),
        ({"load_best_model_at_end": True, "eval_strategy": "epoch"}, "the evaluation loss is used"),
        ({"metric_for_best_model": "wer"}, "a higher 'wer' counts as better"),
        ({"fp16": True}, "float32"),
        ({"tf32": True}, "tf32=True has no effect"),
        ({"fsdp_config": {"min_num_params": 1}}, "fsdp is off"),
        ({"liger_kernel_config": {"rope": True}}, "use_liger_kernel is off"),
        ({"save_steps": -1}, "no checkpoint before the last step"),
        ({"accelerator_config": {"non_blocking": True}}, "non_blocking has no effect"),
    ],
)
def test_derived_and_ineffective_values_are_noted_once(arguments, said, capsys):
    build_arguments(**arguments)
    assert said in capsys.readouterr().err
    build_arguments(**arguments)
    assert capsys.readouterr().err == ""


def test_ordinary_arguments_print_no_notice(capsys):
    build_arguments(learning_rate=1e-3, eval_strategy="epoch", metric_for_best_model="loss", bf16=True)
    assert capsys.readouterr().err == ""


def test_no_size_of_evaluation_batches_is_the_default() -> None:
    assert TrainingArguments("out", per_device_eval_batch_size=None).eval_batch_size == 8
