"""The arguments themselves: names, order, defaults and words, next to those of transformers."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import subprocess
import sys
import typing

import pytest

from ostinato.arguments.fields.extensions import Extras
from ostinato.arguments.seq2seq_args import Seq2SeqTrainingArguments
from ostinato.arguments.training_args import TrainingArguments
from tests.support.apis import guest, load_library

PAIRS = [(TrainingArguments, "TrainingArguments"), (Seq2SeqTrainingArguments, "Seq2SeqTrainingArguments")]


def theirs(name: str = "TrainingArguments"):
    pytest.importorskip("transformers")
    library = load_library("transformers")
    if not library.__version__.startswith("5.22."):
        pytest.skip("arguments are those of transformers 5.22")
    return getattr(library, name)


def default_of(field: dataclasses.Field):
    return field.default_factory() if field.default is dataclasses.MISSING else field.default


@pytest.mark.parametrize(("ours", "name"), PAIRS)
def test_names_order_and_defaults_are_those_of_transformers(ours, name):
    expected = [(field.name, default_of(field)) for field in dataclasses.fields(theirs(name))]
    found = [(field.name, default_of(field)) for field in dataclasses.fields(ours)]
    assert found == expected
    assert [type(value) for _, value in found] == [type(value) for _, value in expected]


@pytest.mark.parametrize(("ours", "name"), PAIRS)
def test_the_signature_of_init_is_that_of_transformers(ours, name):
    expected = list(inspect.signature(theirs(name).__init__).parameters)
    assert list(inspect.signature(ours.__init__).parameters) == expected


def test_choices_are_those_of_transformers():
    expected = {f.name: list(f.metadata["choices"]) for f in dataclasses.fields(theirs()) if "choices" in f.metadata}
    fields = dataclasses.fields(TrainingArguments)
    assert {f.name: list(f.metadata["choices"]) for f in fields if "choices" in f.metadata} == expected


def test_what_the_command_line_parser_needs_besides_is_there():
    def metadata(cls):
        fields = dataclasses.fields(cls)
        return {f.name: {k: v for k, v in f.metadata.items() if k not in ("help", "choices")} for f in fields}

    assert metadata(TrainingArguments) == metadata(theirs())


@pytest.mark.parametrize("cls", [TrainingArguments, Seq2SeqTrainingArguments, Extras])
def test_every_argument_says_what_it_changes(cls):
    helps = {field.name: field.metadata["help"] for field in dataclasses.fields(cls)}
    assert all(text.endswith(".") and len(text) > 20 for text in helps.values())
    assert len(set(helps.values())) == len(helps)
    for name, text in helps.items():  # argparse interpolates %
        argparse.ArgumentParser().add_argument(f"--{name}", help=text)


def test_help_is_in_our_own_words():
    texts = {field.name: field.metadata.get("help") for field in dataclasses.fields(theirs())}
    same = [f.name for f in dataclasses.fields(TrainingArguments) if f.metadata["help"] == texts.get(f.name)]
    assert same == []


@pytest.mark.parametrize("cls", [TrainingArguments, Seq2SeqTrainingArguments])
def test_types_can_be_resolved(cls):
    hints = typing.get_type_hints(cls)
    assert set(hints) == {field.name for field in dataclasses.fields(cls)}
    assert hints["max_steps"] is int
    assert hints["disable_tqdm"] == (bool | None)


def test_all_arguments_can_be_passed_by_position():
    values = ["out", 4, 1.5, 7, 1e-3, "cosine", {"num_cycles": 2}, 3, "sgd", "momentum=0.9", 0.1]
    ours = TrainingArguments(*values, use_cpu=True)
    with guest("transformers"):
        expected = theirs()(*values, use_cpu=True)
    for name in [field.name for field in dataclasses.fields(expected)][: len(values)]:
        assert getattr(ours, name) == getattr(expected, name), name


def test_every_position_is_taken_as_in_transformers():
    """The defaults of all arguments, by position, give the default arguments."""
    fields = dataclasses.fields(Seq2SeqTrainingArguments)
    values = ["out", *(default_of(field) for field in fields[1:])]
    assert Seq2SeqTrainingArguments(*values) == Seq2SeqTrainingArguments("out")
    with pytest.raises(TypeError, match="positional"):
        Seq2SeqTrainingArguments(*values, True)


def test_an_unknown_argument_is_refused():
    with pytest.raises(TypeError, match="learning_rat"):
        TrainingArguments("out", learning_rat=1)  # type: ignore[call-arg]


def test_importing_arguments_loads_no_hugging_face_library():
    code = (
        "import sys, ostinato.arguments.seq2seq_args, ostinato.arguments.settings;"
        "print([n for n in ('transformers', 'datasets', 'accelerate') if n in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
