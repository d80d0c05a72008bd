"""Every argument name of transformers 4.30 to 5.22 is accepted with its meaning, or refused with a reason."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from pathlib import Path
from typing import Any

import pytest

import ostinato
from ostinato.arguments.renamed_arguments import OLD_ARGUMENTS
from ostinato.core.errors import ConfigError, NotSupportedError
from ostinato.core.notices import forget_notices

NAMES = json.loads((Path(__file__).parent / "data" / "argument_names.json").read_text(encoding="utf-8"))
GONE = sorted(name for name, (_, last) in NAMES["TrainingArguments"].items() if last != "5.22")

# An old name with a value that asks for something -> what it means under the present names.
MEANS: dict[str, tuple[Any, dict[str, Any]]] = {
    "evaluation_strategy": ("epoch", {"eval_strategy": "epoch", "do_eval": True}),
    "no_cuda": (True, {"use_cpu": True}),
    "per_gpu_train_batch_size": (3, {"per_device_train_batch_size": 3, "train_batch_size": 3}),
    "per_gpu_eval_batch_size": (3, {"per_device_eval_batch_size": 3, "eval_batch_size": 3}),
    "warmup_ratio": (0.25, {"warmup_steps": 0.25}),
    "adafactor": (True, {"optim": "adafactor"}),
    "group_by_length": (True, {"train_sampling_strategy": "group_by_length"}),
    "include_inputs_for_metrics": (True, {"include_for_metrics": ["inputs"]}),
    "include_tokens_per_second": (True, {"include_num_input_tokens_seen": "all"}),
    "push_to_hub_model_id": ("model", {"hub_model_id": "model"}),
    "push_to_hub_organization": ("org", {"hub_model_id": "org/out"}),
    "push_to_hub_token": ("hf_secret", {"hub_token": "hf_secret"}),
    "torchdynamo": ("eager", {"torch_compile_backend": "eager", "torch_compile": True}),
    "xpu_backend": ("gloo", {"ddp_backend": "gloo"}),
    "dispatch_batches": (True, {"accelerator_config": ostinato.AcceleratorConfig(dispatch_batches=True)}),
    "split_batches": (True, {"accelerator_config": ostinato.AcceleratorConfig(split_batches=True)}),
    # Nothing under another name: what they ask for is how it is, and a line says so.
    "half_precision_backend": ("cuda_amp", {}),
    "fp16_backend": ("amp", {}),
    "fp16_opt_level": ("O2", {}),
    "use_mps_device": (True, {}),
    "overwrite_output_dir": (True, {}),
    "save_safetensors": (False, {}),
    "use_legacy_prediction_loop": (True, {}),
    "logging_dir": ("logs", {}),
}
REFUSED: dict[str, Any] = {
    "jit_mode_eval": True,
    "use_ipex": True,
    "tpu_num_cores": 8,
    "tpu_metrics_debug": True,
    "past_index": 2,
    "sharded_ddp": "simple",
    "fsdp_min_num_params": 100,
    "fsdp_transformer_layer_cls_to_wrap": "BertLayer",
    "tp_size": 2,
    "mp_parameters": '{"microbatches": 2}',
    "ray_scope": "all",
}
# What each was when nobody gave it, in the last release that had it.
OLD_DEFAULTS: dict[str, Any] = {name: OLD_ARGUMENTS[name].default for name in GONE}


@pytest.fixture(autouse=True)
def fresh_notices():
    forget_notices()


def make(**arguments: Any) -> ostinato.TrainingArguments:
    return ostinato.TrainingArguments(**{"output_dir": "out", "use_cpu": True, **arguments})


def test_the_two_tables_hold_every_name_that_is_gone():
    assert sorted([*MEANS, *REFUSED]) == GONE
    assert sorted(OLD_ARGUMENTS) == GONE


@pytest.mark.parametrize("owner", ["TrainingArguments", "Seq2SeqTrainingArguments"])
def test_every_name_that_is_left_is_an_argument(owner):
    present = {name for name, (_, last) in NAMES[owner].items() if last == "5.22"}
    assert present <= {field.name for field in dataclasses.fields(getattr(ostinato, owner))}


@pytest.mark.parametrize("owner", ["Trainer", "Seq2SeqTrainer"])
def test_every_argument_that_a_trainer_ever_had_is_accepted(owner):
    assert set(NAMES[owner]) <= set(inspect.signature(getattr(ostinato, owner)).parameters)


@pytest.mark.parametrize("name", sorted(MEANS))
def test_an_old_name_means_what_it_meant_and_one_line_says_so(name, capfd):
    value, means = MEANS[name]
    args = make(**{name: value})
    assert {new: getattr(args, new) for new in means} == means
    said = [line for line in capfd.readouterr().err.splitlines() if name in line]
    assert len(said) == 1
    make(**{name: value})
    assert name not in capfd.readouterr().err  # said once


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_we_do_not_do_is_refused_with_what_to_use_instead(name):
    with pytest.raises(NotSupportedError) as refusal:
        make(**{name: REFUSED[name]})
    assert refusal.value.why and refusal.value.fix


@pytest.mark.parametrize("name", GONE)
def test_an_old_default_asks_for_nothing_and_nothing_is_said(name, capfd):
    assert make(**{name: OLD_DEFAULTS[name]}) == make()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", sorted(MEANS))
def test_an_old_name_can_be_read_and_set(name):
    value, means = MEANS[name]
    args = make(**{name: value})
    if not name.startswith("per_gpu"):  # these were None unless given, and what counts is what follows from them
        assert getattr(args, name) in (value, means.get("hub_model_id"))
    changed = make()
    setattr(changed, name, value)
    changed.validate()
    assert changed == args or name == "no_cuda"


def test_reading_an_old_name_that_was_never_given():
    args = make()
    assert (args.evaluation_strategy, args.warmup_ratio, args.group_by_length) == ("no", 0, False)
    assert (args.overwrite_output_dir, args.save_safetensors, args.per_gpu_train_batch_size) == (False, True, None)
    assert args.logging_dir.startswith("out")
    with pytest.raises(AttributeError, match="evaluation_strateg"):
        _ = args.evaluation_strateg


def test_setting_an_old_name_to_what_we_do_not_do_is_refused():
    args = make()
    with pytest.raises(NotSupportedError, match="use_ipex"):
        args.use_ipex = True


@pytest.mark.parametrize(
    ("given", "steps"),
    [({"warmup_ratio": 1.0}, 40), ({"warmup_ratio": 0.1}, 4), ({"warmup_ratio": 0.1, "warmup_steps": 7}, 7)],
)
def test_a_warmup_ratio_counts_as_it_did(given, steps):
    args = make(**given)
    assert args.get_warmup_steps(40) == steps
    assert not math.isnan(args.warmup_ratio)


@pytest.mark.parametrize("share", [-0.1, 1.5, "0.1"])
def test_a_warmup_ratio_that_is_no_share_is_refused(share):
    with pytest.raises(ConfigError, match="warmup_ratio"):
        make(warmup_ratio=share)


def test_a_name_and_its_old_name_may_agree_but_not_differ():
    assert make(evaluation_strategy="epoch", eval_strategy="epoch").eval_strategy == "epoch"
    with pytest.raises(ConfigError, match="evaluation_strategy and eval_strategy='steps' contradict") as refusal:
        make(evaluation_strategy="epoch", eval_strategy="steps")
    assert "leave evaluation_strategy out" in refusal.value.fix


def test_an_organization_and_a_name_go_together_in_any_order():
    one = make(push_to_hub_organization="org", push_to_hub_model_id="model")
    other = make(push_to_hub_model_id="model", push_to_hub_organization="org")
    assert one.hub_model_id == other.hub_model_id == "org/model"


def test_a_subclass_may_reuse_an_old_name():
    @dataclasses.dataclass
    class Arguments(ostinato.TrainingArguments):
        group_by_length: str = "mine"

    args = Arguments("out", use_cpu=True, group_by_length="other")
    assert (args.group_by_length, args.train_sampling_strategy) == ("other", "random")


def test_a_subclass_with_an_init_of_its_own_takes_old_names():
    class Arguments(ostinato.TrainingArguments):
        def __init__(self, *args: Any, extra: int = 0, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.extra = extra

    args = Arguments("out", use_cpu=True, evaluation_strategy="epoch", extra=3)
    assert (args.eval_strategy, args.extra) == ("epoch", 3)


def test_the_signature_shows_the_present_names():
    parameters = inspect.signature(ostinato.TrainingArguments).parameters
    assert "eval_strategy" in parameters and "evaluation_strategy" not in parameters
    assert next(iter(parameters)) == "output_dir"
