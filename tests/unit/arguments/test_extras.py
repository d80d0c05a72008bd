"""Our own arguments: given by name, but never in the way of a field, an option or an attribute of somebody else."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from ostinato import ConfigError, Extras, HfArgumentParser, Seq2SeqTrainingArguments, TrainingArguments
from ostinato.arguments.extras import EXTRAS, list_declarations
from ostinato.arguments.from_transformers import convert_arguments
from ostinato.arguments.settings import LoaderSettings
from tests.support.apis import load_library


def make(cls: type = TrainingArguments, **given: Any) -> Any:
    return cls(output_dir="out", use_cpu=True, **given)


@dataclass
class PackingConfig(TrainingArguments):
    """As TRL's SFTConfig: a field with the name of one of ours."""

    packing: bool = False


@dataclass
class PackingMixin:
    packing: bool | None = None


@dataclass
class LateMixinConfig(TrainingArguments, PackingMixin):
    """The field comes after ours in the order of bases."""


@dataclass
class DataArguments:
    """As LLaMA-Factory's: other arguments on the same command line."""

    packing: bool = False
    journal: str = "none"


class PropertyArguments(TrainingArguments):
    @property
    def packing(self) -> str:
        return "a property"


def test_they_are_given_read_and_set_by_name():
    args = make(isolate_rng=False, nonfinite_patience=0)
    assert (args.isolate_rng, args.nonfinite_patience, args.packing) == (False, 0, False)
    args.packing = True
    assert args.packing and args.ostinato.packing
    assert args.ostinato == Extras(isolate_rng=False, nonfinite_patience=0, packing=True)


@pytest.mark.parametrize("whole", [Extras(packing=True), {"packing": True}], ids=["object", "dict"])
def test_they_are_given_as_a_whole(whole):
    assert make(ostinato=whole).ostinato == Extras(packing=True)
    assert make(ostinato=whole, rehearse=True).ostinato == Extras(packing=True, rehearse=True)


def test_fields_of_the_class_are_none_of_ours_and_fields_of_an_object_all():
    assert not EXTRAS.keys() & {field.name for field in dataclasses.fields(Seq2SeqTrainingArguments)}
    assert {f"ostinato.{name}" for name in EXTRAS} <= {field.name for field in dataclasses.fields(make())}


@pytest.mark.parametrize("cls", [TrainingArguments, PackingConfig])
def test_copies_keep_them(cls):
    args = make(cls, **{"ostinato.packing": True}, split_by_length=False)
    copies = [
        dataclasses.replace(args, seed=1),
        cls(**args.to_dict()),
        cls(**dataclasses.asdict(args)),
        copy.copy(args),
        copy.deepcopy(args),
        pickle.loads(pickle.dumps(args)),
    ]
    assert [one.ostinato.packing for one in copies] == [True] * 6


@pytest.mark.parametrize(
    "read",
    [
        lambda args: args.to_dict(),
        lambda args: {one.name: getattr(args, one.name) for one in dataclasses.fields(args)},
    ],
    ids=["to_dict", "fields"],
)
def test_arguments_of_a_subclass_made_from_ours_keep_its_own_defaults(read):
    """Libraries make their arguments from those of `TrainingArguments`, and their names may be ours."""
    own = dataclasses.make_dataclass(
        "Own", [("journal", str, "diary"), ("packing", str, "x")], bases=(TrainingArguments,)
    )
    made = own(**read(make(packing=True, rehearse=True)))
    assert (made.journal, made.packing) == ("diary", "x")
    assert made.ostinato == Extras(packing=True, rehearse=True)


@pytest.mark.parametrize("change", [{"packing": True}, {"ostinato.packing": True}, {"ostinato": Extras(packing=True)}])
def test_one_is_changed_in_a_copy(change):
    assert dataclasses.replace(make(), **change).packing is True


def test_a_shallow_copy_can_be_changed_alone():
    args = make()
    other = copy.copy(args)
    other.rehearse = True
    assert (args.rehearse, other.rehearse) == (False, True)


@pytest.mark.parametrize("cls", [PackingConfig, LateMixinConfig])
def test_a_field_of_a_subclass_is_its_own(cls):
    args = make(cls, packing=True)
    assert args.packing is True and args.ostinato.packing is False
    assert LoaderSettings.of(args).packs is False
    args = make(cls, packing=False, ostinato=Extras(packing=True))
    assert args.packing is False and LoaderSettings.of(args).packs is True
    content = args.to_dict()
    assert content["packing"] is False and content["ostinato.packing"] is True
    setattr(args, "ostinato.packing", False)
    assert args.ostinato.packing is False


def test_an_attribute_of_a_subclass_is_its_own():
    args = make(PropertyArguments)
    assert args.packing == "a property" and args.to_dict()["ostinato.packing"] is False


def test_a_field_of_transformers_arguments_is_not_taken_for_ours():
    library = load_library("transformers")
    kind = dataclasses.make_dataclass("SFTConfig", [("packing", bool, True)], bases=(library.TrainingArguments,))
    args = convert_arguments(kind("out", use_cpu=True))
    assert args.packing is True and args.ostinato.packing is False


def test_what_is_wrong_with_them_is_named():
    with pytest.raises(ConfigError, match=r"Extras has no argument 'packng'[\s\S]*did you mean 'packing'"):
        make(ostinato={"packng": True})
    own = dataclasses.make_dataclass("Own", [("nonfinite_patience", int, 1)], bases=(TrainingArguments,))
    with pytest.raises(ConfigError, match=r"ostinato\.nonfinite_patience=-1 is not a whole number"):
        make(own, ostinato=Extras(nonfinite_patience=-1))


def test_each_has_a_declaration_under_the_name_it_has():
    assert {"packing", "rehearse"} <= list_declarations(TrainingArguments).keys()
    assert {"ostinato.packing", "rehearse"} <= list_declarations(PackingConfig).keys()
    assert "packing" not in list_declarations(PackingConfig)


# --- the command line ------------------------------------------------------------------------------------------------


def parse(*words: str, types: Any = TrainingArguments) -> Any:
    return HfArgumentParser(types).parse_args_into_dataclasses(["--output_dir", "out", "--use_cpu", *words])


@pytest.mark.parametrize("words", [["--packing"], ["--packing", "true"], ["--ostinato.packing"]])
def test_options_with_and_without_the_prefix(words):
    (args,) = parse(*words)
    assert args.packing is True


@pytest.mark.parametrize("word", ["--no_journal", "--ostinato.no_journal"])
def test_options_that_turn_off(word):
    assert parse(word)[0].journal is False


def test_an_option_of_another_dataclass_is_its_own():
    args, data = parse("--packing", "--journal", "mine", types=(TrainingArguments, DataArguments))
    assert data == DataArguments(packing=True, journal="mine")
    assert args.ostinato == Extras()
    args, data = parse("--ostinato.packing", "--ostinato.no_journal", types=(TrainingArguments, DataArguments))
    assert data == DataArguments() and args.ostinato == Extras(packing=True, journal=False)


def test_an_option_of_the_script_is_its_own():
    parser = HfArgumentParser(TrainingArguments)
    parser.add_argument("--packing", default="best")
    args, others = parser.parse_args_into_dataclasses(["--output_dir", "out", "--use_cpu", "--packing", "first"])
    assert others.packing == "first" and args.ostinato.packing is False


def test_transformers_parser_offers_the_fields_alone():
    """None of ours is in the way of another dataclass."""
    parser = load_library("transformers").HfArgumentParser((TrainingArguments, DataArguments))
    args, data = parser.parse_args_into_dataclasses(["--output_dir", "out", "--use_cpu", "--packing", "true"])
    assert data.packing is True and args.ostinato.packing is False


@pytest.mark.parametrize("content", [{"packing": True}, {"ostinato.packing": True}, {"ostinato": {"packing": True}}])
def test_keys_of_files(content):
    (args,) = HfArgumentParser(TrainingArguments).parse_dict({"output_dir": "out", "use_cpu": True, **content})
    assert args.packing is True


def test_a_key_of_another_dataclass_is_its_own():
    parser = HfArgumentParser((TrainingArguments, DataArguments))
    args, data = parser.parse_dict({"output_dir": "out", "use_cpu": True, "packing": True})
    assert data.packing is True and args.ostinato.packing is False


def test_defaults_of_a_parser():
    parser = HfArgumentParser((TrainingArguments, DataArguments))
    parser.set_defaults(output_dir="out", use_cpu=True, rehearse=True, packing=True)
    args, data = parser.parse_args_into_dataclasses([])
    assert args.rehearse is True and data.packing is True and args.ostinato.packing is False
    args, _ = parser.parse_args_into_dataclasses(["--rehearse", "false"])
    assert args.rehearse is False


def test_the_help_lists_them_once():
    text = HfArgumentParser(TrainingArguments).format_help()
    assert text.count("--split_by_length") == 1 and "--ostinato.split_by_length" in text


def test_the_environment_sets_them_where_a_subclass_has_the_name(monkeypatch):
    monkeypatch.setenv("OSTINATO_DEFAULTS", "packing=true")
    args = make(PackingConfig)
    assert args.packing is False and args.ostinato.packing is True
