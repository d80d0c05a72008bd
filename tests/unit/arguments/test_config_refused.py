"""What is refused, how it is said, and that all of it is said at once."""

from __future__ import annotations

import pytest

from ostinato.core.errors import ConfigError, NotSupportedError
from tests.support.apis import guest, load_library
from tests.support.cpu_arguments import build_arguments

CONTRADICTIONS = [
    {"eval_strategy": "steps", "logging_steps": 0, "logging_strategy": "no"},
    {"eval_strategy": "steps", "eval_steps": 1.5},
    {"eval_strategy": "bogus"},
    {"save_strategy": "bogus"},
    {"logging_strategy": "bogus"},
    {"hub_strategy": "bogus"},
    {"lr_scheduler_type": "bogus"},
    {"optim": "bogus"},
    {"debug": "bogus"},
    {"logging_steps": 0},
    {"logging_steps": 1.5},
    {"save_steps": 1.5},
    {"load_best_model_at_end": True},
    {"lr_scheduler_type": "reduce_lr_on_plateau"},
    {"lr_scheduler_type": "greedy"},
    {"fp16": True, "bf16": True},
    {"fp16_full_eval": True, "bf16_full_eval": True},
    {"warmup_steps": -1},
    {"dataloader_prefetch_factor": 2},
    {"gradient_checkpointing_kwargs": "{bad"},
    {"torch_empty_cache_steps": 0},
]

# transformers takes these, and fails later, ignores them or does something meaningless
STRICTER = [
    {"load_best_model_at_end": True, "save_strategy": "no"},
    {"load_best_model_at_end": True, "save_strategy": "best"},
    {"save_strategy": "best", "eval_strategy": "epoch"},
    {"save_strategy": "best", "metric_for_best_model": "loss"},
    {"eval_strategy": "steps", "eval_steps": -3},
    {"logging_steps": -1},
    {"dataloader_persistent_workers": True},
    {"dataloader_multiprocessing_context": "spawn"},
    {"dataloader_multiprocessing_context": "bogus", "dataloader_num_workers": 1},
    {"log_level": "INFO"},
    {"log_level_replica": "bogus"},
    {"train_sampling_strategy": "bogus"},
    {"ddp_backend": "bogus"},
    {"per_device_train_batch_size": 0},
    {"per_device_eval_batch_size": -1},
    {"per_device_train_batch_size": 8.0},
    {"gradient_accumulation_steps": 0},
    {"eval_accumulation_steps": 0},
    {"learning_rate": "1e-4"},
    {"learning_rate": -1.0},
    {"learning_rate": float("nan")},
    {"weight_decay": -0.1},
    {"adam_beta1": 1.0},
    {"label_smoothing_factor": 1.5},
    {"label_smoothing_factor": -0.1},
    {"max_grad_norm": None},
    {"max_grad_norm": float("nan")},
    {"save_steps": float("inf")},
    {"seed": None},
    {"data_seed": 1.5},
    {"dataloader_num_workers": -1},
    {"nonfinite_patience": -1},
    {"lr_scheduler_kwargs": "min_lr=1"},
    {"lr_scheduler_kwargs": "{bad"},
    {"label_names": "labels"},
    {"include_for_metrics": "inputs"},
    {"include_for_metrics": ["input"]},
    {"optim": "galore_adamw"},
    {"optim": "apollo_adamw_layerwise"},
    {"optim": "galore_adamw_layerwise", "optim_target_modules": "all-linear", "gradient_accumulation_steps": 2},
    {"optim": "lomo", "auto_find_batch_size": True},
    {"accelerator_config": {"gradient_accumulation_kwargs": {"num_step": 2}}},
]

MISSING = [
    {"deepspeed": {"zero_optimization": {"stage": 3}}},
    {"deepspeed": "ds.json"},
    {"parallelism_config": {"cp_size": 2}},
    {"debug": "tpu_metrics_debug"},
]


@pytest.mark.parametrize("arguments", CONTRADICTIONS, ids=str)
def test_values_that_transformers_refuses(arguments):
    with pytest.raises(ConfigError) as refusal:
        build_arguments(**arguments)
    assert str(refusal.value).count("why:") == str(refusal.value).count("fix:") >= 1
    pytest.importorskip("transformers")
    with guest("transformers"), pytest.raises(ValueError):
        load_library("transformers").TrainingArguments(**{"output_dir": "out", "use_cpu": True, **arguments})


@pytest.mark.parametrize("arguments", STRICTER, ids=str)
def test_values_that_cannot_work(arguments):
    with pytest.raises(ConfigError) as refusal:
        build_arguments(**arguments)
    assert not isinstance(refusal.value, NotSupportedError)
    assert next(iter(arguments)) in str(refusal.value)
    assert "OptimizerNames" not in str(refusal.value)  # values are written as users write them


def test_the_optimizer_that_accumulates_is_named():
    layerwise = {"optim": "galore_adamw_layerwise", "optim_target_modules": "all-linear"}
    with pytest.raises(ConfigError, match=r"or optim='galore_adamw'$"):
        build_arguments(**layerwise, gradient_accumulation_steps=2)


@pytest.mark.parametrize("arguments", MISSING, ids=lambda arguments: str(arguments).split(" at 0x")[0])
def test_unsupported_arguments_name_a_replacement(arguments):
    with pytest.raises(NotSupportedError) as refusal:
        build_arguments(**arguments)
    assert refusal.value.fix
    assert next(iter(arguments)) in refusal.value.what


@pytest.mark.parametrize(
    "arguments",
    [
        {"deepspeed": {}, "fsdp": "", "fsdp_config": None},
        {"accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 2}}, "gradient_accumulation_steps": 2},
        {"accelerator_config": {"gradient_accumulation_kwargs": {"sync_with_dataloader": False}}},
        {"hub_token": "t", "hub_model_id": "a/b", "hub_strategy": "end", "hub_always_push": True},
        {"run_name": "x", "project": "y", "trackio_space_id": "z"},
        {"max_grad_norm": float("inf")},
        {"seed": -1},
    ],
    ids=str,
)
def test_values_without_effect_are_accepted(arguments):
    args = build_arguments(**arguments)
    assert all(getattr(args, name) == value for name, value in arguments.items() if name != "accelerator_config")


def test_numbers_of_numpy_are_numbers():
    numpy = pytest.importorskip("numpy")
    args = build_arguments(learning_rate=numpy.float32(1e-3), per_device_train_batch_size=numpy.int64(4))
    assert args.per_device_train_batch_size == 4


@pytest.mark.parametrize(
    "evaluation",
    [
        {"eval_strategy": "epoch"},
        {"eval_strategy": "steps", "eval_steps": 300},
        {"eval_strategy": "steps", "eval_steps": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "saving",
    [
        {"save_strategy": "no"},
        {"save_strategy": "epoch"},
        {"save_strategy": "best"},
        {"save_strategy": "steps", "save_steps": 500},
        {"save_strategy": "steps", "save_steps": 0.2},
    ],
    ids=str,
)
def test_the_best_model_can_be_loaded_with_every_schedule(evaluation, saving):
    args = build_arguments(load_best_model_at_end=True, **evaluation, **saving)
    assert (args.metric_for_best_model, args.greater_is_better) == ("loss", False)


def test_all_problems_are_reported_together():
    with pytest.raises(ConfigError) as refusal:
        build_arguments(
            fp16=True,
            bf16=True,
            eval_strategy="never",
            optim="adamm",
            lr_scheduler_kwargs="{bad",
            learning_rate="1e-4",
            dataloader_prefetch_factor=2,
            deepspeed="ds.json",
            accelerator_config={"gradient_accumulation_kwargs": {"steps": 2}},
        )
    text = str(refusal.value)
    assert not isinstance(refusal.value, NotSupportedError)
    assert text.startswith("8 problems")
    assert text.count("why:") == text.count("fix:") == 8
    for said in ("'never'", "did you mean", "{bad", "'1e-4'", "bf16=True with fp16=True", "prefetch_factor=2"):
        assert said in text
    assert "deepspeed='ds.json' is not supported" in text
    assert "gradient_accumulation_kwargs has unknown keys: steps" in text


def test_several_unsupported_arguments_are_one_error():
    with pytest.raises(NotSupportedError, match="2 problems"):
        build_arguments(deepspeed="ds.json", parallelism_config={"cp_size": 2})


def test_one_problem_keeps_its_three_parts():
    with pytest.raises(ConfigError) as refusal:
        build_arguments(save_steps=1.5)
    assert refusal.value.what == "save_steps=1.5 is not a whole number"
    assert refusal.value.fix == "set save_steps=2"


def test_a_refusal_is_also_the_error_that_transformers_raises():
    with pytest.raises(ValueError):
        build_arguments(fp16=True, bf16=True)
    with pytest.raises(NotImplementedError):
        build_arguments(debug="tpu_metrics_debug")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ACCELERATE_USE_DEEPSPEED", "true"),
        ("ACCELERATE_MIXED_PRECISION", "fp8"),
    ],
)
def test_unsupported_launcher_settings_are_refused(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(NotSupportedError, match=variable):
        build_arguments()


def test_default_launcher_settings_are_accepted(monkeypatch):
    for variable, value in {"USE_FSDP": "false", "DYNAMO_BACKEND": "no", "MIXED_PRECISION": "no"}.items():
        monkeypatch.setenv(f"ACCELERATE_{variable}", value)
    assert build_arguments().mixed_precision == "no"


def test_uneven_batches_are_refused_only_where_they_matter(monkeypatch):
    build_arguments(accelerator_config={"even_batches": False})
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(NotSupportedError, match="even_batches"):
        build_arguments(accelerator_config={"even_batches": False})


def test_arguments_changed_later_can_be_checked_again():
    args = build_arguments()
    args.load_best_model_at_end = True
    with pytest.raises(ConfigError, match="eval_strategy='no'"):
        args.validate()
    args.eval_strategy = "epoch"
    args.validate()
    assert args.do_eval
    assert args.metric_for_best_model == "loss"
