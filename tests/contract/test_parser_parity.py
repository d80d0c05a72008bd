"""The same dataclasses and the same words, read by transformers' HfArgumentParser and by ours."""

# Annotations as scripts write them.
# ruff: noqa: UP006, UP007, UP035, UP045, RUF009

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import io
import sys
import typing
from collections import Counter
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, List, Literal, Optional, Union

import pytest

from tests.support.apis import load_library

pytest.importorskip("transformers")
hypothesis = pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ostinato.arguments import parser as ours  # noqa: E402

load_library("transformers")

from transformers import hf_argparser as theirs  # noqa: E402

FEW = settings(
    max_examples=60, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
MANY = settings(FEW, max_examples=300)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"
    THIRD = 3


class Mood(str, enum.Enum):
    RED = "red"
    BLUE = "blue"


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


# --- what is compared ------------------------------------------------------------------------------------------------


def outcome(run: Any) -> Any:
    """What a call gives, with types; or how it fails."""
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            result = run()
    except SystemExit as exit_:
        return f"exit {exit_.code}"
    except (ValueError, argparse.ArgumentError):
        return "refused"
    return typed(result)


def typed(value: Any) -> Any:
    """The value with the type of everything in it; 0, 0.0 and False are three things."""
    if dataclasses.is_dataclass(value):
        return [(f.name, typed(getattr(value, f.name))) for f in dataclasses.fields(value)]
    if isinstance(value, argparse.Namespace):
        return sorted((name, typed(inner)) for name, inner in vars(value).items())
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [typed(inner) for inner in value]
    return type(value).__name__, repr(value)


def assert_same(run: Any) -> Any:
    expected = outcome(lambda: run(theirs))
    assert outcome(lambda: run(ours)) == expected
    return expected


# --- random dataclasses and command lines ----------------------------------------------------------------------------

NAMES = ["alpha", "beta_two", "gamma_three_x", "delta", "no_delta", "betas", "e"]

SINGLE_WORDS = "1 -3 0 1.5 1e-4 nan true No t red blue 3 a 2.5 x Color.RED 1_000 True None [1] {} -x é a=b %"
WORDS = st.sampled_from([*SINGLE_WORDS.split(), "", "b c", " 7"])


def texts() -> st.SearchStrategy[str]:
    return st.sampled_from(["", "main", "100%", "a b"])


def whole() -> st.SearchStrategy[int]:
    return st.integers(-5, 5)


def real() -> st.SearchStrategy[Any]:
    return st.sampled_from([0.0, 5e-5, 1, -2.5])


def lists(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(of, max_size=2)


# Kinds of fields, each with defaults that fit it; text is among those of numbers, as scripts have it.
KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, texts()),
    (int, whole() | st.just("3") | st.just("wrong")),
    (float, real() | st.just("1e-4")),
    (bool, st.booleans()),
    (Optional[str], st.none() | texts()),
    (Optional[int], st.none() | whole()),
    (float | None, st.none() | real()),
    (Optional[bool], st.none() | st.booleans()),
    (bool | None, st.none() | st.booleans()),
    (Literal["a", "x"], st.just("a")),
    (Literal["a", 1, 2.5], st.sampled_from(["a", 1, "1", "not among them"])),
    (Optional[Literal["a", 3]], st.sampled_from([None, "a", 3])),
    (Color, st.sampled_from([Color.RED, "blue", 3, "3"])),
    (Optional[Color], st.sampled_from([None, Color.RED, "red"])),
    (Union[Color, str], st.sampled_from([Color.RED, "red"])),
    (Number, st.sampled_from([Number.ONE, 2])),
    (Path, st.sampled_from(["here", Path("there")])),
    (Union[int, str, None], st.none() | whole() | texts()),
    (Union[str, Path, None], st.none() | texts()),
    (list[int], lists(whole())),
    (List[float], lists(real())),
    (Optional[list[str]], lists(texts())),
    (list[str] | None, lists(texts())),
    (list[Mood], lists(st.just(Mood.BLUE))),
    (Union[str, list[str]], lists(texts())),
    (Union[list[int], None, str], lists(whole())),
]


@st.composite
def dataclass_types(draw: Any, *, names: Any = NAMES) -> type:
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
    return dataclasses.make_dataclass("Random", [(name, *draw(fields())) for name in chosen], kw_only=True)


@st.composite
def fields(draw: Any) -> tuple[Any, Any]:
    hint, defaults = draw(st.sampled_from(KINDS))
    metadata: dict[str, Any] = draw(st.sampled_from([{}, {}, {"help": "Some 10%% of it."}]))
    if hint is str and draw(st.booleans()):
        metadata = {**metadata, "choices": ["a", "red"]}
    if draw(st.integers(0, 7)) == 0:
        return hint, field(metadata=metadata)
    default = draw(defaults)
    if isinstance(default, list):
        return hint, field(default_factory=lambda: list(default), metadata=metadata)
    return hint, field(default=default, metadata=metadata)


@st.composite
def command_lines(draw: Any, cls: type) -> list[str]:
    words: list[str] = []
    for _ in range(draw(st.integers(0, 4))):
        name = draw(st.sampled_from([f.name for f in dataclasses.fields(cls)]))
        forms = [f"--{name}"] * 4 + [f"--{name.replace('_', '-')}", f"--no_{name}", f"--no-{name}", f"--{name[:4]}"]
        option = draw(st.sampled_from([*forms, "--bogus", "--"]))
        fit = st.lists(fitting(cls, name), min_size=1, max_size=1 + takes_many(cls, name))
        values = draw(fit | fit | st.lists(WORDS, max_size=2))
        if values and draw(st.integers(0, 4)) == 0:
            words += [f"{option}={values[0]}", *values[1:]]
        else:
            words += [option, *values]
    return words


def fitting(cls: type, name: str) -> st.SearchStrategy[str]:
    """Words that probably can be read, so that not every long command line fails."""
    hint = next(f.type for f in dataclasses.fields(cls) if f.name == name)
    plain = {int: ["1", "-3"], float: ["1e-4", "2"], bool: ["true", "no"], Color: ["red", "3"]}
    inner = typing.get_args(hint)[0] if typing.get_args(hint) and typing.get_origin(hint) is not Literal else hint
    if typing.get_origin(inner) is Literal:
        return st.sampled_from([str(choice) for choice in typing.get_args(inner)])
    return st.sampled_from(plain.get(inner, ["a", "red", "1"]))


def cases() -> Any:
    return dataclass_types().flatmap(lambda cls: st.tuples(st.just(cls), command_lines(cls)))


def test_random_command_lines():
    seen: Counter[str] = Counter()

    @MANY
    @given(cases(), st.booleans())
    def check(case: Any, remaining: bool) -> None:
        cls, words = case

        def run(library: Any) -> Any:
            parser = library.HfArgumentParser(cls)
            return parser.parse_args_into_dataclasses(words, remaining, look_for_args_file=False)

        result = assert_same(run)
        seen[result if isinstance(result, str) else "read"] += 1

    check()
    assert seen["read"] > 80 and seen["exit 2"] > 50 and seen["refused"] > 10, seen


@FEW
@given(cases())
def test_random_namespaces(case):
    cls, words = case
    assert_same(lambda library: library.HfArgumentParser(cls).parse_args(words))
    assert_same(lambda library: library.HfArgumentParser(cls).parse_args([]))
    assert_same(lambda library: library.HfArgumentParser(cls).parse_known_args(words))


@FEW
@given(dataclass_types(), st.data())
def test_random_set_defaults(cls, data):
    names = [f.name for f in dataclasses.fields(cls)]
    changed = data.draw(st.dictionaries(st.sampled_from(names), whole() | texts() | st.none(), max_size=2))
    words = data.draw(command_lines(cls))
    # A list whose default is one text is read differently on purpose: see below.
    changed = {
        name: value for name, value in changed.items() if not (isinstance(value, str) and takes_many(cls, name))
    }

    def run(library: Any) -> Any:
        parser = library.HfArgumentParser(cls)
        parser.set_defaults(**changed)
        return parser.parse_args_into_dataclasses(words, look_for_args_file=False), parser.parse_args([])

    assert_same(run)


def takes_many(cls: type, name: str) -> bool:
    hint = next(f.type for f in dataclasses.fields(cls) if f.name == name)
    return "list" in str(hint).lower()


@FEW
@given(
    dataclass_types(names=["alpha", "beta"]),
    dataclass_types(names=["gamma", "delta"]),
    st.dictionaries(st.sampled_from(["alpha", "beta", "gamma", "delta", "other"]), WORDS | whole(), max_size=5),
    st.booleans(),
)
def test_random_dicts(first, second, content, allow_extra_keys):
    def run(library: Any) -> Any:
        try:
            return library.HfArgumentParser((first, second)).parse_dict(content, allow_extra_keys)
        except TypeError as missing:  # ours is a ConfigError as well
            raise ValueError from missing

    assert_same(run)


# --- documented cases ------------------------------------------------------------------------------------------------


@dataclass
class Documented:
    """As the documentation writes fields."""

    regular_arg: str = field(default="Huggingface", metadata={"aliases": ["--example", "-e"], "help": "Regular."})
    steps: int = 1
    flag: bool = False
    on: bool = True
    names: list[str] = field(default_factory=lambda: ["p"])
    derived: int = field(init=False, default=7)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--example", "a"],
        ["-e", "a"],
        ["-ea"],
        ["--regular-arg=a"],
        ["--regular", "a"],
        ["--fl"],
        ["--flag", "--"],
        ["--", "stray"],
        ["--no_on", "stray"],
        ["--names"],
        ["--names", "a", "--names", "b", "c"],
        ["--derived", "3"],
        ["--steps", "1", "--steps", "2"],
        ["--steps", "--flag"],
        ["-h"],
    ],
    ids=" ".join,
)
def test_command_lines(words):
    assert_same(lambda library: library.HfArgumentParser(Documented).parse_args_into_dataclasses(words))
    assert_same(lambda library: library.HfArgumentParser([Documented]).parse_args_into_dataclasses(words, True))


@pytest.mark.parametrize("library", [theirs, ours], ids=["theirs", "ours"])
def test_hfarg(library):
    @dataclass
    class Arguments:
        hf_arg: str = library.HfArg(default="Huggingface", aliases=["--example", "-e"], help="What a nice syntax!")
        some: list = library.HfArg(default_factory=list, metadata={"help": "kept"}, kw_only=True)

    first, second = dataclasses.fields(Arguments)
    assert dict(first.metadata) == {"aliases": ["--example", "-e"], "help": "What a nice syntax!"}
    assert (first.default, second.default_factory, second.kw_only) == ("Huggingface", list, True)
    assert dict(second.metadata) == {"help": "kept"}
    needed = library.HfArg()
    assert needed.default is MISSING and needed.default_factory is MISSING


def test_words_and_choices():
    for word in ["yes", "TRUE", "t", "y", "1", "no", "False", "f", "n", "0", True, False]:
        assert ours.string_to_bool(word) is theirs.string_to_bool(word)
    for word in ["on", "", " true", "2"]:
        for library in (theirs, ours):
            with pytest.raises(argparse.ArgumentTypeError):
                library.string_to_bool(word)
    choices = ["a", 1, "1", 2.5, None]
    for word in ["a", "1", "2.5", "None", "other"]:
        expected = theirs.make_choice_type_function(choices)(word)
        assert typed(ours.make_choice_type_function(choices)(word)) == typed(expected)


def test_further_options_groups_and_parents():
    def run(library: Any, *words: str) -> Any:
        parent = argparse.ArgumentParser(add_help=False)
        parent.add_argument("--from_parent", type=int, default=4)
        parser = library.HfArgumentParser(Documented, parents=[parent], allow_abbrev=False, argument_default=None)
        parser.add_argument("--more", type=int, default=2)
        parser.add_argument("place", nargs="?")
        return parser.parse_args_into_dataclasses(list(words), return_remaining_strings=True)

    assert_same(run)
    assert_same(lambda library: run(library, "here", "--more", "5", "--flag", "--fl", "x"))


def test_the_name_of_a_group():
    @dataclass
    class Named(Documented):
        _argument_group_name = "A group"

    for library in (theirs, ours):
        titles = [group.title for group in library.HfArgumentParser(Named)._action_groups]
        assert titles[-1] == "A group" and len(titles) == 3


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    (tmp_path / "one.args").write_text("--steps 11\n--names a b\n")
    (tmp_path / "two.args").write_text('--steps 22 --flag --regular_arg "quoted')
    (tmp_path / "script.py").write_text("")
    (tmp_path / "script.args").write_text("--steps 33 --unknown")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "script.py"), "--on", "false"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("flagged", [None, ["one.args"], ["one.args", "two.args"], ["two.args", "one.args"]], ids=str)
@pytest.mark.parametrize("filename", [None, "one.args", "two.args", "none.args", Path("one.args")], ids=str)
@pytest.mark.parametrize("look", [True, False])
@pytest.mark.parametrize("words", [None, [], ["--steps", "5"]], ids=str)
def test_files_of_words(files, flagged, filename, look, words):
    given_words = words
    if flagged is not None:
        given_words = [*(words or []), *(word for file in flagged for word in ("--cfg", file))]

    def run(library: Any) -> Any:
        return library.HfArgumentParser(Documented).parse_args_into_dataclasses(
            given_words, True, look, args_filename=filename, args_file_flag="--cfg" if flagged else None
        )

    assert_same(run)


@pytest.mark.parametrize(
    "content",
    ['{"steps": 3, "names": ["ü"], "flag": true}', '{"steps": null}', '{"other": 1}', '{"derived": 1}', "{,}"],
)
@pytest.mark.parametrize("allow_extra_keys", [True, False])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_json_and_yaml(tmp_path, content, allow_extra_keys, form):
    yaml = pytest.importorskip("yaml")
    file = tmp_path / "arguments"
    file.write_text(content, encoding="utf-8")

    def run(library: Any) -> Any:
        parser = library.HfArgumentParser(Documented)
        try:
            return getattr(parser, f"parse_{form}_file")(file, allow_extra_keys)
        except yaml.YAMLError:
            return parser.parse_dict({"refused": True})

    assert_same(run)


# --- training arguments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["transformers", "ostinato"])
@pytest.mark.parametrize("name", ["TrainingArguments", "Seq2SeqTrainingArguments"])
def test_the_options_of_training_arguments(name, library):
    """Every option, spelling, count of words and choice, of transformers' arguments and of ours."""

    def options(parser: Any, library: str) -> dict[str, Any]:
        actions = parser.HfArgumentParser(getattr(load_library(library), name))._actions
        return {
            action.option_strings[0]: (
                action.option_strings,
                action.dest,
                action.const,
                action.required,
                chosen(action),
            )
            for action in actions
        }

    def chosen(action: argparse.Action) -> Any:
        return action.choices and list(action.choices)

    expected, found = options(theirs, "transformers"), options(ours, library)
    assert {option: found[option] for option in expected} == expected
    assert library == "ostinato" or found.keys() == expected.keys()


@pytest.mark.parametrize("library", ["transformers", "ostinato"])
@pytest.mark.parametrize("name", ["TrainingArguments", "Seq2SeqTrainingArguments"])
def test_the_defaults_of_training_arguments(name, library):
    expected = vars(theirs.HfArgumentParser(getattr(load_library("transformers"), name)).parse_args([]))
    found = vars(ours.HfArgumentParser(getattr(load_library(library), name)).parse_args([]))
    # Text that the annotation allows stays what it is in the dataclass.
    assert (expected.pop("include_num_input_tokens_seen"), found.pop("include_num_input_tokens_seen")) == (False, "no")
    assert (expected.pop("debug"), found.pop("debug")) == (None, "")
    assert {key: typed(found[key]) for key in expected} == {key: typed(value) for key, value in expected.items()}


def extended(base: type) -> type:
    """Arguments with fields of a script's own."""
    own = [("mine", Optional[int], 3), ("names", list[str], field(default_factory=list))]
    return dataclasses.make_dataclass("Extended", own, bases=(base,), kw_only=True)


# Words for fields of all kinds: what a field cannot read, both have to refuse.
SINGLE = ["1", "-3", "1e-4", "true", "No", "steps", "linear", "none", "info", "a/b", '{"a": 1}', "underflow_overflow"]
WORDS_FOR_A_FIELD = [[], *([word] for word in SINGLE), ["a", "b"]]


@pytest.mark.parametrize("adapt", [lambda cls: cls, extended], ids=["as they are", "extended"])
@pytest.mark.parametrize("name", ["TrainingArguments", "Seq2SeqTrainingArguments"])
def test_our_arguments_in_transformers_parser(name, adapt):
    """A script that changes the import of the arguments and keeps that of the parser."""
    classes = [adapt(getattr(load_library(library), name)) for library in ("transformers", "ostinato")]
    parsers = [theirs.HfArgumentParser(cls) for cls in classes]
    expected, found = ({action.dest: action for action in parser._actions} for parser in parsers)
    own = found.keys() - expected.keys()
    assert own == {f.name for f in dataclasses.fields(classes[1])} - {f.name for f in dataclasses.fields(classes[0])}
    for dest, action in expected.items():
        for attribute in ("option_strings", "nargs", "const", "default", "required", "metavar"):
            assert typed(plain(getattr(found[dest], attribute))) == typed(plain(getattr(action, attribute))), dest
        assert (found[dest].choices and list(found[dest].choices)) == (action.choices and list(action.choices)), dest


def test_every_field_of_our_arguments_read_by_transformers_parser():
    libraries = [load_library(library) for library in ("transformers", "ostinato")]
    parsers = [theirs.HfArgumentParser(library.Seq2SeqTrainingArguments) for library in libraries]
    readings: Counter[bool] = Counter()

    def read(parser: Any, option: argparse.Action, words: list[str]) -> Any:
        return outcome(lambda: plain(getattr(parser.parse_args([option.option_strings[0], *words]), option.dest)))

    for option in parsers[0]._actions:
        for words in WORDS_FOR_A_FIELD:
            expected, found = (read(parser, option, words) for parser in parsers)
            assert found == expected, (option.dest, words)
            readings[expected == "exit 2"] += 1
    assert min(readings[True], readings[False]) > 300, readings


COMMAND_LINE = """
    --model_name_or_path tiny --no_use_fast_tokenizer --train_file train.txt --max-seq-length 64
    --output_dir out --do_train --learning_rate 1e-4 --per_device_train_batch_size=4 --eval_strategy epoch
    --save_strategy no --lr_scheduler_type cosine --lr_scheduler_kwargs {"num_cycles":2} --warmup_steps 0.1
    --report_to none --optim adamw_torch --weight_decay 0.1 --seed 7 --use_cpu --logging_steps 10 --label_names a b
    --disable_tqdm true --no_remove_unused_columns --dataloader_pin_memory false --mine 4 --names c d
"""


@pytest.mark.parametrize("parser", [ours, theirs], ids=["our parser", "their parser"])
def test_a_scripts_command_line(api, parser):
    """The usual three, in each library's parser."""

    @dataclass
    class ModelArguments:
        model_name_or_path: Optional[str] = None
        use_fast_tokenizer: bool = True

    @dataclass
    class DataArguments:
        train_file: str
        max_seq_length: Optional[int] = 128

    reader = parser.HfArgumentParser((ModelArguments, DataArguments, extended(api.TrainingArguments)))
    model, data, args = reader.parse_args_into_dataclasses(COMMAND_LINE.split(), look_for_args_file=False)
    assert model == ModelArguments("tiny", False)
    assert data == DataArguments("train.txt", 64)
    given_names = ["learning_rate", "per_device_train_batch_size", "eval_strategy", "lr_scheduler_kwargs", "do_eval"]
    given_names += ["warmup_steps", "label_names", "remove_unused_columns", "logging_steps", "disable_tqdm", "optim"]
    given_names += ["report_to", "mine", "names"]
    assert typed([plain(getattr(args, name)) for name in given_names]) == typed(
        [1e-4, 4, "epoch", {"num_cycles": 2}, True, 0.1, ["a", "b"], False, 10, True, "adamw_torch", [], 4, ["c", "d"]]
    )


def plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


# --- differences on purpose ------------------------------------------------------------------------------------------

FAILS = ("exit 2", "refused", "crashes")
DIFFERENCES: list[tuple[str, Any, dict[str, Any], list[str], Any, Any]] = [
    ("text beside a bool", Union[str, bool], {"default": True}, ["all"], FAILS, "all"),
    ("text beside a number", Union[str, int], {"default": 1}, ["all"], FAILS, "all"),
    ("text beside choices", Union[str, Literal[False]], {"default": False}, ["all"], FAILS, "all"),
    ("text, a choice or None", Union[str, Literal[False], None], {"default": None}, ["False"], FAILS, False),
    ("two kinds of number", Union[int, float], {"default": 1}, ["0.5"], FAILS, 0.5),
    ("text, a bool or None", Union[str, bool, None], {"default": None}, ["no"], FAILS, False),
    ("several texts", Union[None, str, list[str]], {"default": None}, ["a", "b"], FAILS, ["a", "b"]),
    ("text, a list or None", Union[str, list[str], None], {"default": None}, ["a"], FAILS, "a"),
    ("a dict", Optional[dict], {"default": None}, ['{"a": 1}'], FAILS, {"a": 1}),
    ("a bare list", list, {"default": None}, ["a"], FAILS, ["a"]),
    ("a list of bools", list[bool], {"default": None}, ["false"], [True], [False]),
    ("a list of choices", list[Literal["a"]], {"default": None}, ["a"], FAILS, ["a"]),
    ("a list of numbered members", list[Color], {"default": None}, ["3"], FAILS, [Color.THIRD]),
    ("a tuple", tuple[int, int], {"default": None}, ["1", "2"], FAILS, (1, 2)),
    ("a tuple of one word", tuple[int, ...], {"default": None}, ["12"], ("1", "2"), (12,)),
    ("anything", Any, {"default": None}, ["a"], FAILS, "a"),
    ("a list that may be empty", list[int], {"default": None, "metadata": {"nargs": "*"}}, [], FAILS, []),
    ("metadata of others", int, {"default": 1, "metadata": {"unit": "m"}}, ["2"], FAILS, 2),
]


@pytest.mark.parametrize(("name", "hint", "more", "words", "expected", "own"), DIFFERENCES, ids=lambda v: v)
def test_values_read_otherwise_on_purpose(name, hint, more, words, expected, own):
    cls = dataclasses.make_dataclass("One", [("one", hint, field(**more))])

    def run(library: Any) -> Any:
        try:
            parser = library.HfArgumentParser(cls)
        except (TypeError, AttributeError):
            return "crashes"
        return parser.parse_args_into_dataclasses(["--one", *words], look_for_args_file=False)[0].one

    found = outcome(lambda: run(theirs))
    assert found in (FAILS[0], FAILS[1], typed(FAILS[2])) if expected is FAILS else found == typed(expected)
    assert outcome(lambda: run(ours)) == typed(own)


@pytest.mark.parametrize(
    ("hint", "more", "expected", "own"),
    [
        (bool, {"default_factory": lambda: True}, False, True),
        (list[int], {"default": (1, 2)}, None, (1, 2)),
        (Union[str, list[str]], {"default": "x"}, None, "x"),
        (Union[str, bool], {"default": "no"}, False, "no"),
        (Union[str, bool], {"default": "all"}, FAILS, "all"),
        (Color, {"default_factory": lambda: Color.RED}, FAILS, Color.RED),
    ],
    ids=lambda value: str(value).split(" at 0x")[0],
)
def test_defaults_kept_otherwise_on_purpose(hint, more, expected, own):
    cls = dataclasses.make_dataclass("One", [("one", hint, field(**more))])

    def run(library: Any) -> Any:
        return library.HfArgumentParser(cls).parse_args_into_dataclasses([], look_for_args_file=False)[0].one

    found = outcome(lambda: run(theirs))
    assert found in FAILS if expected is FAILS else found == typed(expected)
    assert outcome(lambda: run(ours)) == typed(own)


def test_yaml_numbers_are_read_otherwise_on_purpose(tmp_path, capsys):
    pytest.importorskip("yaml")
    cls = dataclasses.make_dataclass("One", [("one", float, 1.0)])
    (tmp_path / "a.yaml").write_text("one: 1e-4")
    assert theirs.HfArgumentParser(cls).parse_yaml_file(tmp_path / "a.yaml")[0].one == "1e-4"
    assert ours.HfArgumentParser(cls).parse_yaml_file(tmp_path / "a.yaml")[0].one == 1e-4
