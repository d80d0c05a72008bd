"""What arguments can do: know their process, speak as plain data, be changed in groups, be inherited from."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import logging
import pickle
import subprocess
import sys
from datetime import timedelta
from enum import Enum

import pytest
import torch

from ostinato.arguments.fields.extensions import Extras
from ostinato.arguments.seq2seq_args import Seq2SeqTrainingArguments
from ostinato.arguments.settings import (
    LoaderSettings,
    OptimizerSettings,
    PrecisionSettings,
    ReplicaSettings,
    SaveSettings,
    ScheduleSettings,
)
from ostinato.arguments.training_args import TrainingArguments
from ostinato.core import notices, world
from ostinato.core.choices import OptimizerNames, ParallelMode
from ostinato.core.errors import ConfigError, NotSupportedError
from tests.support.apis import guest, load_library
from tests.support.cpu_arguments import build_arguments

OWN = {f"ostinato.{field.name}" for field in dataclasses.fields(Extras)}
SETTERS = [name for name in dir(TrainingArguments) if name.startswith("set_")]


def make_theirs(name: str = "TrainingArguments", **arguments):
    pytest.importorskip("transformers")
    return getattr(load_library("transformers"), name)(**{"output_dir": "out", "use_cpu": True, **arguments})


@pytest.fixture
def launched(monkeypatch):
    """Say what torchrun would: `launched(rank=1, size=2)`."""

    def launch(rank: int, size: int, local_rank: int | None = None) -> None:
        values = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank if local_rank is None else local_rank}
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))

    return launch


# --- this process ----------------------------------------------------------------------------------------------------


def test_properties_in_one_process_are_those_of_transformers():
    names = [
        "train_batch_size", "eval_batch_size", "world_size", "process_index", "local_process_index", "device", "n_gpu",
        "place_model_on_device", "should_log", "should_save", "_no_sync_in_gradient_accumulation", "ddp_timeout_delta",
        "default_optim", "_setup_devices", "_VALID_DICT_FIELDS", "mixed_precision", "_n_gpu",
    ]  # fmt: skip
    given = {"per_device_train_batch_size": 3, "per_device_eval_batch_size": 5, "ddp_timeout": 10}
    with guest("transformers"):
        theirs = make_theirs(**given)
        expected = {name: getattr(theirs, name) for name in names}
        mode = theirs.parallel_mode.value
    ours = build_arguments(**given)
    assert {name: getattr(ours, name) for name in names} == expected
    assert ours.parallel_mode.value == mode
    assert ours.ddp_timeout_delta == timedelta(seconds=10)


@pytest.mark.parametrize(
    ("rank", "local_rank", "arguments", "logs", "saves"),
    [
        (0, 0, {}, True, True),
        (1, 1, {}, False, False),
        (2, 0, {}, True, False),  # the first process of a second machine
        (2, 0, {"log_on_each_node": False}, False, False),
        (2, 0, {"save_on_each_node": True}, True, True),
        (3, 1, {"save_on_each_node": True}, False, False),
    ],
)
def test_who_logs_and_who_saves(launched, rank, local_rank, arguments, logs, saves):
    launched(rank, 4, local_rank)
    args = build_arguments(**arguments)
    assert (args.world_size, args.process_index, args.local_process_index) == (4, rank, local_rank)
    assert args.parallel_mode is ParallelMode.DISTRIBUTED
    assert (args.should_log, args.should_save) == (logs, saves)
    assert args.train_batch_size == 8


@pytest.mark.parametrize("level", ["detail", "debug", "info", "warning", "error", "critical", "passive"])
def test_log_levels_are_those_of_transformers(level):
    with guest("transformers"):
        expected = make_theirs(log_level=level).get_process_log_level()
    assert build_arguments(log_level=level).get_process_log_level() == expected


def test_other_processes_have_their_own_log_level(launched):
    launched(1, 2)
    assert build_arguments(log_level="info").get_process_log_level() == logging.WARNING
    assert build_arguments(log_level="info", log_level_replica="error").get_process_log_level() == logging.ERROR


@pytest.mark.parametrize(
    ("rank", "local_rank", "local", "order"),
    [
        (0, 0, True, ["work", "barrier"]),
        (1, 1, True, ["barrier", "work"]),
        (2, 0, True, ["work", "barrier"]),
        (2, 0, False, ["barrier", "work"]),
    ],
)
def test_the_main_process_goes_first(launched, monkeypatch, rank, local_rank, local, order):
    launched(rank, 4, local_rank)
    seen: list[str] = []
    monkeypatch.setattr(world, "_barrier", lambda device, **settings: seen.append("barrier"))
    with build_arguments().main_process_first(local=local, desc="tokenization"):
        seen.append("work")
    assert seen == order


def test_other_processes_continue_when_the_main_process_fails(launched, monkeypatch):
    launched(0, 2)
    seen: list[str] = []
    monkeypatch.setattr(world, "_barrier", lambda device, **settings: seen.append("barrier"))
    with pytest.raises(RuntimeError), build_arguments().main_process_first():
        raise RuntimeError
    assert seen == ["barrier"]


def test_a_single_process_goes_first_at_once():
    with build_arguments().main_process_first():
        pass


class FakeGpus:
    """What torch would say on a machine with two old GPUs."""

    def __init__(self, monkeypatch) -> None:
        cuda = torch.device("cuda")
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: cuda)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "set_device", self.use)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "OldArgument GPU")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: self.capability)
        self.capability = (7, 5)
        # recorded here and not in torch: its flags are global
        monkeypatch.setattr(torch.backends.cuda, "matmul", self)
        self.allow_tf32 = None
        self.current = torch.device("cuda", 0)

    def use(self, device: torch.device) -> None:
        self.current = device


def test_on_gpus_one_process_drives_one(monkeypatch, capsys):
    FakeGpus(monkeypatch)
    notices.forget_notices()
    args = TrainingArguments("out")
    assert (args.device, args.n_gpu, args.train_batch_size) == (torch.device("cuda", 0), 1, 8)
    assert args.parallel_mode is ParallelMode.NOT_PARALLEL
    assert args.dataloader_pin_memory is True
    assert "using 1 of 2 devices" in capsys.readouterr().err
    assert TrainingArguments("out", use_cpu=True).device.type == "cpu"


@pytest.mark.parametrize(("local_rank", "index"), [(0, 0), (1, 1), (2, 0), (5, 1)])
def test_more_processes_than_visible_gpus(launched, monkeypatch, local_rank, index):
    gpus = FakeGpus(monkeypatch)
    launched(local_rank, 8, local_rank)
    args = TrainingArguments("out")
    assert args.device == gpus.current == torch.device("cuda", index)
    assert args.local_process_index == args.distributed_state.local_process_index == local_rank


def test_processes_that_share_gpus_are_noted(launched, monkeypatch, capsys):
    FakeGpus(monkeypatch)
    for processes, is_said in ((2, False), (3, True)):
        notices.forget_notices()
        launched(0, processes, 0)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
        TrainingArguments("out")
        assert ("they share" in capsys.readouterr().err) is is_said


def test_what_a_script_puts_on_cuda_is_on_the_device_of_its_process(launched, monkeypatch):
    gpus = FakeGpus(monkeypatch)
    launched(1, 2, 1)
    TrainingArguments("out", use_cpu=True)
    assert gpus.current == torch.device("cuda", 0), "left alone"
    TrainingArguments("out")
    assert gpus.current == torch.device("cuda", 1)


@pytest.mark.parametrize(
    ("arguments", "device", "backend", "timeout"),
    [
        ({}, "cuda:1", None, 1800),
        ({"use_cpu": True}, "cpu", None, 1800),
        ({"ddp_backend": "gloo", "ddp_timeout": 77}, "cuda:1", "gloo", 77),
    ],
)
def test_waiting_opens_the_group_that_was_asked_for(launched, monkeypatch, arguments, device, backend, timeout):
    FakeGpus(monkeypatch)
    launched(1, 2, 1)
    waits: list[tuple] = []
    monkeypatch.setattr(world, "_barrier", lambda device, **settings: waits.append((device, settings)))
    args = TrainingArguments("out", **arguments)
    with args.main_process_first():
        pass
    args.distributed_state.wait_for_everyone()
    assert waits == [(torch.device(device), {"backend": backend, "timeout_seconds": timeout})] * 2


def test_tf32_is_set_where_there_is_a_gpu(monkeypatch):
    gpus = FakeGpus(monkeypatch)
    before = torch.backends.cudnn.allow_tf32
    try:
        TrainingArguments("out")
        assert (gpus.allow_tf32, torch.backends.cudnn.allow_tf32) == (None, before)
        TrainingArguments("out", tf32=not before)
        assert (gpus.allow_tf32, torch.backends.cudnn.allow_tf32) == (None, before), "it has none"
        gpus.capability = (8, 0)
        TrainingArguments("out", tf32=not before)
        assert (gpus.allow_tf32, torch.backends.cudnn.allow_tf32) == (not before, not before)
    finally:
        torch.backends.cudnn.allow_tf32 = before


def test_bf16_is_refused_on_a_gpu_without_it(monkeypatch):
    FakeGpus(monkeypatch)
    with pytest.raises(ConfigError, match="OldArgument GPU has no bfloat16"):
        TrainingArguments("out", bf16=True)
    assert TrainingArguments("out", bf16=True, use_cpu=True).bf16


def test_setting_the_number_of_gpus_to_one_is_harmless():
    args = build_arguments()
    args._n_gpu = 1
    assert args.n_gpu == 0
    with pytest.raises(NotSupportedError, match="torchrun"):
        args._n_gpu = 2


@pytest.mark.parametrize("warmup", [0, 0.0, 0.1, 0.5, 1.0, 1.5, 10, 10.0])
@pytest.mark.parametrize("steps", [1, 33, 1000])
def test_warmup_steps_are_those_of_transformers(warmup, steps):
    with guest("transformers"):
        expected = make_theirs(warmup_steps=warmup).get_warmup_steps(steps)
    found = build_arguments(warmup_steps=warmup).get_warmup_steps(steps)
    assert (found, type(found)) == (expected, int)


# --- as plain data ---------------------------------------------------------------------------------------------------

GIVEN = {
    "hub_token": "secret",
    "eval_strategy": "steps",
    "lr_scheduler_kwargs": {"dtype": torch.bfloat16, "n": 1},
    "include_for_metrics": ["loss"],
    "disable_tqdm": False,
}


@pytest.mark.parametrize(
    ("ours", "name"),
    [(TrainingArguments, "TrainingArguments"), (Seq2SeqTrainingArguments, "Seq2SeqTrainingArguments")],
)
@pytest.mark.parametrize("method", ["to_dict", "to_sanitized_dict"])
def test_plain_data_is_that_of_transformers(ours, name, method):
    with guest("transformers"):
        expected = getattr(make_theirs(name, **GIVEN), method)()
    found = getattr(ours("out", use_cpu=True, **GIVEN), method)()
    assert set(found) - set(expected) == OWN
    assert {key: found[key] for key in expected} == expected


def test_json_is_that_of_transformers():
    with guest("transformers"):
        expected = make_theirs(**GIVEN).to_json_string()
    found = json.loads(build_arguments(**GIVEN).to_json_string())
    assert {name: value for name, value in found.items() if name not in OWN} == json.loads(expected)
    assert build_arguments(**GIVEN).to_json_string().startswith(expected[:200])


def test_arguments_come_back_from_their_json():
    args = build_arguments(
        eval_strategy="steps", lr_scheduler_kwargs={"a": 1}, load_best_model_at_end=True, nonfinite_patience=3
    )
    back = TrainingArguments(**{**json.loads(args.to_json_string()), "hub_token": None})
    assert back == args


def test_a_generation_config_becomes_plain_data():
    class Config:
        def to_dict(self):
            return {"max_length": 3}

    args = Seq2SeqTrainingArguments("out", use_cpu=True, generation_config=Config())
    assert args.to_dict()["generation_config"] == {"max_length": 3}
    assert args.to_sanitized_dict()["generation_config"] == "{'max_length': 3}"
    json.loads(args.to_json_string())


@pytest.mark.parametrize("show", [str, repr])
def test_secrets_are_not_shown(show):
    @dataclasses.dataclass
    class Mine(TrainingArguments):
        other: int = 1

    for cls in (TrainingArguments, Mine):
        assert "hf_abc" not in show(cls("out", use_cpu=True, hub_token="hf_abc"))
    assert "learning_rate=5e-05" in show(build_arguments())


def test_arguments_can_be_copied_and_pickled():
    args = build_arguments(eval_strategy="epoch", accelerator_config={"non_blocking": True})
    assert copy.deepcopy(args) == args
    assert pickle.loads(pickle.dumps(args)) == args
    assert args != build_arguments()


# --- change several at once ------------------------------------------------------------------------------------------

CHANGED = {
    "per_device_train_batch_size": 3, "per_device_eval_batch_size": 5, "learning_rate": 0.1, "weight_decay": 0.2,
    "num_train_epochs": 7, "max_steps": 9, "gradient_accumulation_steps": 4, "seed": 1, "gradient_checkpointing": True,
    "do_train": True, "do_eval": True, "eval_strategy": "epoch", "eval_steps": 3, "eval_delay": 2,
    "eval_accumulation_steps": 2, "save_steps": 11, "save_total_limit": 2, "save_on_each_node": True,
    "logging_steps": 13, "log_level": "info", "logging_first_step": True, "log_level_replica": "info", "optim": "sgd",
    "adam_beta1": 0.1, "optim_args": "a=1", "lr_scheduler_type": "cosine", "warmup_steps": 3,
    "dataloader_drop_last": True, "dataloader_num_workers": 2, "dataloader_persistent_workers": True,
    "dataloader_prefetch_factor": 2, "ignore_data_skip": True, "data_seed": 5, "prediction_loss_only": True,
}  # fmt: skip

CALLS = [
    *[(name, {}) for name in SETTERS if name != "set_push_to_hub"],
    ("set_push_to_hub", {"model_id": "a/b"}),
    ("set_push_to_hub", {"model_id": "a/b", "strategy": "end", "token": "x", "private_repo": True, "always_push": True,
                         "revision": "dev"}),
    ("set_training", {"learning_rate": 1, "batch_size": 2, "weight_decay": 0.5, "num_epochs": 1, "max_steps": 2,
                      "gradient_accumulation_steps": 3, "seed": 5, "gradient_checkpointing": True}),
    ("set_evaluate", {"strategy": "steps", "steps": 3, "delay": 2.0, "accumulation_steps": 4, "loss_only": True,
                      "batch_size": 2}),
    ("set_evaluate", {"strategy": "steps", "steps": 0.1}),
    ("set_evaluate", {"strategy": "epoch"}),
    ("set_evaluate", {"strategy": "no", "steps": 5}),
    ("set_testing", {"batch_size": 3, "loss_only": True}),
    ("set_save", {"strategy": "epoch", "total_limit": 3, "on_each_node": True}),
    ("set_save", {"strategy": "no"}),
    ("set_logging", {"strategy": "epoch", "steps": 0}),
    ("set_logging", {"steps": 4, "level": "info", "first_step": True, "nan_inf_filter": True, "on_each_node": True,
                     "replica_level": "debug"}),
    ("set_optimizer", {"name": "adafactor", "learning_rate": 1, "weight_decay": 0.1, "beta1": 0.5, "beta2": 0.6,
                       "epsilon": 1e-3, "args": "x=1"}),
    ("set_lr_scheduler", {"name": "cosine", "num_epochs": 2, "max_steps": 5, "warmup_steps": 0.1}),
    ("set_dataloader", {"train_batch_size": 2, "eval_batch_size": 3, "drop_last": True, "num_workers": 2,
                        "persistent_workers": True, "prefetch_factor": 3, "multiprocessing_context": "spawn",
                        "in_order": False, "ignore_data_skip": True, "sampler_seed": 4}),
]  # fmt: skip

# where transformers leaves "none", None and True, which its constructor or its loop would not
SETTLED = {"report_to": [], "eval_delay": 0, "dataloader_pin_memory": False}


@pytest.mark.parametrize("before", [{}, CHANGED], ids=["from defaults", "from others"])
@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=str)
def test_setters_set_what_those_of_transformers_set(before, name, arguments):
    def values(args):
        names = [field.name for field in dataclasses.fields(args) if field.name not in OWN | {"accelerator_config"}]
        found = {name: getattr(args, name) for name in names}
        return {name: value.value if isinstance(value, Enum) else value for name, value in found.items()}

    before = {"disable_tqdm": False, **before}
    with guest("transformers"):
        theirs = make_theirs(**before)
        getattr(theirs, name)(**arguments)
        expected = values(theirs)
    for field, value in SETTLED.items():
        if expected[field] in ("none", None, True):
            expected[field] = value
    ours = build_arguments(**before)
    assert getattr(ours, name)(**arguments) is ours
    assert values(ours) == expected


@pytest.mark.parametrize("name", [*SETTERS, "main_process_first", "get_warmup_steps"])
def test_signatures_are_those_of_transformers(name):
    with guest("transformers"):
        theirs = getattr(load_library("transformers").TrainingArguments, name)

    def shape(function):
        return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]

    assert shape(getattr(TrainingArguments, name)) == shape(theirs)


@pytest.mark.parametrize("name", ["set_evaluate", "set_save", "set_logging"])
def test_setting_steps_needs_a_number_of_steps(name):
    with pytest.raises(ValueError, match="positive"):
        getattr(build_arguments(), name)(strategy="steps", steps=0)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("set_push_to_hub", {"model_id": "a/b", "strategy": "sometimes"}),
        ("set_logging", {"report_to": "wandbb", "level": "info"}),
        ("set_dataloader", {"train_batch_size": 0, "num_workers": 2}),
        ("set_lr_scheduler", {"warmup_steps": -1, "name": "cosine"}),
        ("set_optimizer", {"name": "bogus", "learning_rate": 3.0}),
    ],
)
def test_a_refused_change_changes_nothing(name, arguments):
    args = build_arguments()
    with pytest.raises(ConfigError):
        getattr(args, name)(**arguments)
    assert args == build_arguments()


# --- inheriting ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class ScriptArguments(TrainingArguments):
    """What a user's script adds."""

    _VALID_DICT_FIELDS = [*TrainingArguments._VALID_DICT_FIELDS, "extra"]

    learning_rate: float = 1e-3
    temperature: float = dataclasses.field(default=2.0, metadata={"help": "Of the teacher."})
    extra: dict | str | None = None
    api_token: str | None = None
    length: int = dataclasses.field(init=False, default=0)

    def __post_init__(self):
        if self.bf16 is None:
            self.bf16 = False
        super().__post_init__()
        self.length = len(str(self.output_dir))


def test_a_dataclass_can_inherit_and_add_fields():
    args = ScriptArguments("out", 4, use_cpu=True, bf16=None, extra='{"a": "1"}', eval_strategy="epoch")
    assert (args.output_dir, args.per_device_train_batch_size, args.length) == ("out", 4, 3)
    assert (args.learning_rate, args.temperature, args.extra) == (1e-3, 2.0, {"a": 1})
    assert args.do_eval
    assert args.to_dict()["temperature"] == 2.0
    assert args.to_dict()["api_token"] == "<API_TOKEN>"
    assert "length" not in args.to_dict()
    assert isinstance(args, TrainingArguments)


def test_added_fields_have_the_positions_they_have_with_transformers():
    def positions(base):
        cls = dataclasses.make_dataclass("Mine", [("mine", int, 1)], bases=(base,))
        return list(inspect.signature(cls.__init__).parameters).index("mine")

    pytest.importorskip("transformers")
    assert positions(TrainingArguments) == positions(load_library("transformers").TrainingArguments)


def test_a_subclass_is_refused_contradictions_too():
    with pytest.raises(ConfigError, match="2 problems"):
        ScriptArguments("out", use_cpu=True, fp16=True, bf16=True, seed=None)


def test_seq2seq_arguments():
    args = Seq2SeqTrainingArguments("out", use_cpu=True, predict_with_generate=True, generation_num_beams=4)
    assert isinstance(args, TrainingArguments)
    assert (args.predict_with_generate, args.generation_num_beams, args.generation_max_length) == (True, 4, None)


def test_an_argument_of_old_scripts_says_what_to_use(capsys):
    notices.forget_notices()
    Seq2SeqTrainingArguments("out", use_cpu=True, sortish_sampler=True)
    assert "group_by_length" in capsys.readouterr().err


# --- what parts are told ---------------------------------------------------------------------------------------------


def test_settings_of_each_part(launched):
    launched(1, 2)
    args = build_arguments(
        warmup_steps=0.1, optim_args="momentum=0.9", lr_scheduler_kwargs='{"a": 1}', bf16=True, save_steps=3
    )
    assert OptimizerSettings.of(args).name is OptimizerNames.ADAMW_TORCH_FUSED
    assert OptimizerSettings.of(args).options == {"momentum": "0.9"}
    schedule = ScheduleSettings.of(args, 33)
    assert (schedule.warmup_steps, schedule.options) == (4, {"a": 1})
    loader = LoaderSettings.of(args)
    assert (loader.rank, loader.world_size, loader.pin_memory) == (1, 2, False)
    assert PrecisionSettings.of(args, "cpu") == PrecisionSettings(bf16=True, fp16=False, device_type="cpu")
    assert ReplicaSettings.of(args).timeout_seconds == 1800
    assert SaveSettings.of(args).writes_here is False


def test_arguments_alone_can_wait_for_other_processes() -> None:
    """Scripts call `main_process_first` before they import a trainer."""
    program = (
        "from ostinato import TrainingArguments\nfrom ostinato.core import world\nassert world._barrier is not None\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
