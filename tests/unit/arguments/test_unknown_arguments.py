"""A name that is no argument is an error that knows the nearest one."""

from __future__ import annotations

import dataclasses

import pytest

from ostinato import ConfigError, TrainingArguments


def test_the_nearest_name_is_suggested():
    with pytest.raises(ConfigError) as refusal:
        TrainingArguments("out", use_cpu=True, learnig_rate=1e-3)
    assert str(refusal.value) == (
        "TrainingArguments has no argument 'learnig_rate' (learnig_rate=0.001)\n"
        "  why: an unknown argument would have no effect\n"
        "  fix: did you mean 'learning_rate'?"
    )
    assert isinstance(refusal.value, TypeError)  # what Python raises for an unexpected keyword


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("batch_size", "per_device_train_batch_size"),
        ("per_device_batch_size", "per_device_train_batch_size"),
        ("num_epochs", "num_train_epochs"),
        ("epochs", "num_train_epochs"),
        ("evaluation_stategy", "eval_strategy"),
        ("save_step", "save_steps"),
        ("lr", "learning_rate"),
        ("Learning_Rate", "learning_rate"),
        ("xyzzy", None),
    ],
)
def test_names_of_other_libraries(name, nearest):
    with pytest.raises(TypeError, match=name) as refusal:
        TrainingArguments("out", use_cpu=True, **{name: 1})
    if nearest is not None:
        assert nearest in refusal.value.fix


def test_a_secret_in_a_misspelt_argument_is_not_shown():
    with pytest.raises(ConfigError) as refusal:
        TrainingArguments("out", use_cpu=True, hub_tokens_api_key="sk_very")
    assert "sk_very" not in str(refusal.value)


def test_errors_name_the_subclass():
    @dataclasses.dataclass
    class MyArguments(TrainingArguments):
        temperature: float = 1.0

    assert MyArguments("out", use_cpu=True, temperature=2.0).temperature == 2.0
    with pytest.raises(TypeError, match="MyArguments has no argument 'temprature'") as refusal:
        MyArguments("out", use_cpu=True, temprature=2.0)
    assert "temperature" in refusal.value.fix
