"""`args.explain()`: every argument, its value, where it came from, what it changes."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from ostinato import ConfigError, Extras, Seq2SeqTrainingArguments, TrainingArguments
from ostinato.arguments.describe import describe_arguments
from tests.support.cpu_arguments import build_arguments


def origins(args: TrainingArguments) -> dict[str, str]:
    return {setting.name: str(setting.origin) for setting in describe_arguments(args)}


def test_every_argument_is_there_once_with_what_it_changes():
    settings = describe_arguments(build_arguments())
    fields = [*dataclasses.fields(TrainingArguments), *dataclasses.fields(Extras)]
    assert sorted(setting.name for setting in settings) == sorted(field.name for field in fields)
    assert all(setting.changes and setting.subject for setting in settings)


def test_origins_of_given_default_and_derived_values():
    args = build_arguments(eval_strategy="steps", logging_steps=7, load_best_model_at_end=True)
    found = origins(args)
    assert found["logging_steps"] == found["output_dir"] == found["eval_strategy"] == "given"
    assert found["learning_rate"] == "default"
    assert found["eval_steps"] == "derived: eval_strategy='steps' without eval_steps takes logging_steps"
    assert found["do_eval"] == "derived: eval_strategy='steps' evaluates"
    assert found["greater_is_better"] == "derived: 'loss' ends in 'loss'"
    assert found["metric_for_best_model"].startswith("derived")


def test_a_value_given_by_position_or_by_its_old_name_is_given():
    assert origins(TrainingArguments("out", use_cpu=True))["output_dir"] == "given"
    assert origins(build_arguments(evaluation_strategy="epoch"))["eval_strategy"] == "given"


def test_a_derived_value_follows_what_it_was_derived_from():
    assert (
        origins(build_arguments(metric_for_best_model="accuracy"))["greater_is_better"]
        == "derived: 'accuracy' does not end in 'loss'"
    )
    assert (
        origins(build_arguments(metric_for_best_model="accuracy", greater_is_better=False))["greater_is_better"]
        == "given"
    )


def test_origin_of_a_value_that_is_set_later():
    args = build_arguments()
    args.learning_rate = 1e-3
    assert origins(args)["learning_rate"].startswith("changed")
    args.validate()
    assert origins(args)["learning_rate"].startswith("changed")
    assert origins(args.set_training(batch_size=32))["per_device_train_batch_size"].startswith("changed")


def test_a_refused_change_is_undone():
    args = build_arguments()
    with pytest.raises(ConfigError):
        args.set_training(learning_rate=-1)
    assert origins(args)["learning_rate"] == "default"


def test_the_text(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # test runners set it
    build_arguments(eval_strategy="epoch").explain("do_eval", "eval_strategy")
    assert capsys.readouterr().out == (
        "When and how the model is evaluated.\n"
        "  eval_strategy = 'epoch'  (given)\n"
        "      Evaluate never (no), every eval_steps (steps) or after each epoch (epoch) of training.\n"
        "\n"
        "Arguments for scripts; most of them have no effect on the trainer.\n"
        "  do_eval = True  (derived: eval_strategy='epoch' evaluates)\n"
        "      For scripts: whether to evaluate. Set by any eval_strategy other than no.\n"
    )


def test_all_arguments_can_be_printed(capsys):
    build_arguments().explain()
    text = capsys.readouterr().out
    assert all(f"  {field.name} = " in text for field in dataclasses.fields(TrainingArguments))
    assert all(f"  {field.name} = " in text for field in dataclasses.fields(Extras))


def test_a_misspelt_name_gets_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'learning_rate'"):
        build_arguments().explain("learnig_rate")


def test_secrets_are_not_shown(capsys):
    args = build_arguments(hub_token="hf_secret", lr_scheduler_kwargs={"api_key": "sk_secret", "pad_token": "x"})
    args.explain()
    for text in (capsys.readouterr().out, repr(args), args.to_json_string(), str(args.to_sanitized_dict())):
        assert "_secret" not in text and "<HUB_TOKEN>" in text and "<API_KEY>" in text and "pad_token" in text


def test_arguments_of_a_subclass_stand_under_its_own_words(capsys):
    Seq2SeqTrainingArguments("out", use_cpu=True, predict_with_generate=True).explain("predict_with_generate")
    assert capsys.readouterr().out.startswith(
        "The arguments of a training run with generation of text in evaluations.\n"
    )


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda args: pickle.loads(pickle.dumps(args))])
def test_copies_keep_origins(again):
    args = again(build_arguments(eval_strategy="epoch"))
    assert args == build_arguments(eval_strategy="epoch")
    assert origins(args)["do_eval"].startswith("derived")
