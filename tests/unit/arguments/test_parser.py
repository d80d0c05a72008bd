"""`HfArgumentParser`: what a command line, a file or a dict becomes, and what is said when it cannot."""

# Annotations as scripts write them; HfArg makes a field.
# ruff: noqa: UP006, UP007, UP035, UP045, RUF009

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, Final, List, Literal, NewType, Optional, Union

import pytest

from ostinato.arguments.parser import HfArg, HfArgumentParser, make_choice_type_function, string_to_bool
from ostinato.arguments.seq2seq_args import Seq2SeqTrainingArguments
from ostinato.arguments.training_args import TrainingArguments
from ostinato.core.errors import ConfigError
from ostinato.core.notices import forget_notices

if TYPE_CHECKING:
    from fractions import Fraction

ABSENT = object()


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"
    THIRD = 3


class Size(str, enum.Enum):
    SMALL = "small"
    LARGE = "large"


Steps = NewType("Steps", int)


@pytest.fixture(autouse=True)
def _notices_are_new():
    forget_notices()
    yield
    forget_notices()


def with_field(hint: Any, default: Any = ABSENT, **more: Any) -> type:
    """A dataclass with one field, `the_field`."""
    if default is not ABSENT:
        more["default"] = default
    return dataclasses.make_dataclass("OneField", [("the_field", hint, field(**more))])


def parse(cls: type, *words: str) -> Any:
    (result,) = HfArgumentParser(cls).parse_args_into_dataclasses(list(words), look_for_args_file=False)
    return result


def read(hint: Any, *words: str, default: Any = None) -> Any:
    return parse(with_field(hint, default), "--the_field", *words).the_field


def refused(capsys, cls: type, *words: str) -> str:
    """The message argparse exits with."""
    with pytest.raises(SystemExit) as exit_:
        parse(cls, *words)
    assert exit_.value.code == 2
    return capsys.readouterr().err


# --- types -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "words", "expected"),
    [
        (str, ["a b"], "a b"),
        (int, ["-3"], -3),
        (float, ["1e-4"], 1e-4),
        (Optional[int], ["3"], 3),
        (float | None, ["3"], 3.0),
        (bool, [], True),
        (bool, ["No"], False),
        (Optional[bool], ["1"], True),
        (Path, ["a/b"], Path("a/b")),
        (Any, ["x"], "x"),
        (Literal["a", 1, 2.5], ["2.5"], 2.5),
        (Optional[Literal["a", 1]], ["1"], 1),
        (Color, ["red"], "red"),
        (Color | None, ["3"], 3),
        (Union[Color, str], ["blue"], "blue"),
        (list[int], ["1", "2"], [1, 2]),
        (List[float], ["1"], [1.0]),
        (Optional[list[str]], ["a"], ["a"]),
        (list, ["a", "b"], ["a", "b"]),
        (Sequence[int], ["1"], [1]),
        (list[bool], ["false", "yes"], [False, True]),
        (list[Color], ["red", "3"], [Color.RED, Color.THIRD]),
        (list[Literal["a", 1]], ["1", "a"], [1, "a"]),
        (list[int | None], ["1"], [1]),
        (list[list[int]], ["[1, 2]", "[]"], [[1, 2], []]),
        (tuple[int, str], ["1", "2"], (1, "2")),
        (tuple[float, ...], ["1", "2", "3"], (1.0, 2.0, 3.0)),
        (set[int], ["1", "1"], {1}),
        (dict, ['{"a": 1}'], {"a": 1}),
        (Optional[Dict[str, Any]], ['{"a": [1]}'], {"a": [1]}),
        (Annotated[int, "x"], ["1"], 1),
        (Final[int], ["1"], 1),
        (Steps, ["7"], 7),
        (Optional[Steps], ["7"], 7),
    ],
    ids=str,
)
def test_words_become_values_of_the_type(hint, words, expected):
    value = read(hint, *words)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("hint", "words", "expected"),
    [
        (Union[str, int], ["3"], 3),
        (Union[str, int], ["three"], "three"),
        (Union[int, str, None], ["3"], "3"),
        (Union[str, int, None], ["3"], 3),
        (Union[int, float], ["3"], 3),
        (Union[int, float], ["0.5"], 0.5),
        (Union[int, float, str], ["3"], 3.0),
        (Literal["auto"] | int, ["auto"], "auto"),
        (Literal["auto"] | int, ["8"], 8),
        (Union[str, Literal[False], None], ["False"], False),
        (Union[str, Literal[False], None], ["name"], "name"),
        (Union[dict, str, None], ['{"a": 1}'], '{"a": 1}'),
        (Union[dict, str], ['{"a": 1}'], {"a": 1}),
        (Union[dict, str], ["file.json"], "file.json"),
        (Union[str, bool], [], True),
        (Union[str, bool], ["no"], False),
        (Union[str, bool], ["all"], "all"),
        (Union[bool, str, None], ["all"], "all"),
        (Union[str, list[str]], ["a"], ["a"]),
        (Union[str, list[str], None], ["a"], "a"),
        (Union[str, list[str], None], ["a", "b"], ["a", "b"]),
        (Union[None, str, list[int]], ["1"], "1"),
        (Union[None, str, list[int]], ["1", "2"], [1, 2]),
        (Union[list[int], None, str], ["1"], [1]),
        (Union[int, list[int]], ["1"], 1),
        (Union[str, Path, None], ["a"], Path("a")),
    ],
    ids=str,
)
def test_a_union_is_read_as_the_member_that_can_read_it(hint, words, expected):
    value = read(hint, *words)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("hint", "words", "message"),
    [
        (int, ["1.5"], "invalid int value"),
        (bool, ["maybe"], "neither yes nor no"),
        (Optional[bool], [], "expected one argument"),
        (dict, ["{"], "is not JSON"),
        (dict, ["[1]"], "is not a JSON object"),
        (list[int], [], "at least one argument"),
        (list[Color], ["green"], "not one of red, blue, 3"),
        (Union[Color, str], ["green"], "invalid choice: 'green'"),
        (list[Literal["a"]], ["b"], "invalid choice"),
        (tuple[int, int], ["1"], "expected 2 arguments"),
        (tuple[int, int], ["1", "x"], "invalid literal for int"),
        (Union[int, float], ["x"], "'x' is not int or float"),
        (Literal["auto"] | int, ["x"], "is not"),
        (Callable, ["x"], "cannot be written on a command line"),
        (type[int], ["x"], "cannot be written on a command line"),
    ],
    ids=str,
)
def test_what_cannot_be_read_exits_with_a_reason(capsys, hint, words, message):
    text = refused(capsys, with_field(hint, None), "--the_field", *words)
    assert message in text
    assert "error: argument --the_field" in text


def test_a_wrong_choice_is_answered_with_the_nearest(capsys):
    cls = with_field(Literal["linear", "cosine"], "linear")
    assert "did you mean cosine?" in refused(capsys, cls, "--the_field", "cosin")
    cls = with_field(str, "linear", metadata={"choices": ["linear", "cosine"]})
    assert "did you mean cosine?" in refused(capsys, cls, "--the_field", "cosin")


def test_public_names():
    assert [string_to_bool(word) for word in ("Yes", "t", "1", True)] == [True] * 4
    assert [string_to_bool(word) for word in ("NO", "f", "0", False)] == [False] * 4
    with pytest.raises(argparse.ArgumentTypeError):
        string_to_bool("on")
    assert make_choice_type_function(["a", 1])("1") == 1


# --- flags -----------------------------------------------------------------------------------------------------------


@dataclass
class Switches:
    off: bool = False
    on_now: bool = True
    needed: bool = field(kw_only=True)
    unsure: bool | None = None
    sure: bool | None = True
    made: bool = field(default_factory=lambda: True)


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ([], {}),
        (["--off", "--needed"], {"off": True, "needed": True}),
        (["--off", "yes", "--unsure", "n"], {"off": True, "unsure": False}),
        (["--no_on_now"], {"on_now": False}),
        (["--no-on-now"], {"on_now": False}),
        (["--no_on_now", "--on-now"], {}),
        (["--on_now", "f", "--no_sure", "--no_made"], {"on_now": False, "sure": False, "made": False}),
    ],
)
def test_flags(words, changed):
    assert parse(Switches, *words) == Switches(**{"needed": False, **changed})


def test_only_what_is_on_by_default_has_an_opposite():
    with pytest.raises(ConfigError, match=r"did you mean --off false for --no_off\?"):
        parse(Switches, "--no_off")


# --- names -----------------------------------------------------------------------------------------------------------


def test_both_spellings_aliases_and_equal_signs():
    cls = with_field(int, 1, metadata={"aliases": ["--other", "-o"]})
    for words in (["--the_field", "2"], ["--the-field", "2"], ["--the-field=2"], ["--other", "2"], ["-o", "2"]):
        assert parse(cls, *words).the_field == 2
    assert parse(with_field(int, 1, metadata={"aliases": "-o"}), "-o", "2").the_field == 2


def test_hfarg_is_a_field_with_words():
    metadata = {"choices": [1, 2]}

    @dataclass
    class Arguments:
        some: list[int] = HfArg(aliases=["--s"], help="Some.", default_factory=lambda: [1], metadata=metadata)
        other: int = HfArg(default=3, kw_only=True)

    assert metadata == {"choices": [1, 2]}
    assert dict(dataclasses.fields(Arguments)[0].metadata) == {"choices": [1, 2], "aliases": ["--s"], "help": "Some."}
    assert parse(Arguments, "--s", "2").some == [2]


def test_init_false_fields_are_no_options():
    @dataclass
    class Arguments:
        a: int = 1
        b: int = field(init=False, default=7)

    assert parse(Arguments, "--a", "2") == Arguments(2)
    with pytest.raises(ConfigError, match="--b"):
        parse(Arguments, "--b", "2")
    with pytest.raises(ConfigError, match="keys not used"):
        HfArgumentParser(Arguments).parse_dict({"b": 1})


def test_the_same_field_twice_is_refused_with_both_owners():
    first = dataclasses.make_dataclass("First", [("x", int, 1)])
    second = dataclasses.make_dataclass("Second", [("x", int, 2)])
    with pytest.raises(ConfigError, match="First and Second both have a field 'x'"):
        HfArgumentParser((first, second))
    both = HfArgumentParser((first, second), conflict_handler="resolve")
    assert [made.x for made in both.parse_args_into_dataclasses(["--x", "5"])] == [5, 5]
    assert [made.x for made in both.parse_args_into_dataclasses([])] == [1, 2]


def test_a_field_that_cannot_be_an_option_is_named():
    with pytest.raises(ConfigError, match=r"Arguments.help cannot be an option"):
        HfArgumentParser(dataclasses.make_dataclass("Arguments", [("help", int, 1)]))


@pytest.mark.parametrize("thing", [int, 3, "text", [int], Switches(needed=True)])
def test_what_is_no_dataclass_is_refused(thing):
    with pytest.raises(ConfigError, match=r"not a (dataclass|class)") as caught:
        HfArgumentParser(thing)
    assert isinstance(caught.value, TypeError)


def test_types_of_text_are_resolved_or_their_name_is_given():
    @dataclass
    class Arguments:
        ratio: Fraction | None = None

    with pytest.raises(ConfigError, match="Arguments's fields cannot be resolved: name 'Fraction'") as caught:
        HfArgumentParser(Arguments)
    assert isinstance(caught.value, RuntimeError)
    assert "define or import Fraction" in caught.value.fix


def test_dataclass_types_are_kept_in_order():
    other = with_field(int, 1)
    assert HfArgumentParser(Switches).dataclass_types == [Switches]
    assert HfArgumentParser(cls for cls in (Switches, other)).dataclass_types == [Switches, other]
    assert HfArgumentParser().parse_args_into_dataclasses([]) == ()


# --- given and default -----------------------------------------------------------------------------------------------


@dataclass
class Recorder:
    """Remembers the keywords it was called with."""

    name: str = "n"
    numbers: list[int] = field(default_factory=lambda: [1])
    color: Color | str = Color.RED
    size: Size = Size.SMALL
    flag: bool = True
    tokens: str | bool = "no"
    mode: Literal["fast", "slow"] = "-fast"[1:]  # not the very object that is among the choices

    def __new__(cls, **keywords: Any):
        self = super().__new__(cls)
        self.called_with = keywords
        return self


def test_a_dataclass_is_called_with_what_was_given_and_nothing_else():
    assert parse(Recorder).called_with == {}
    assert parse(Recorder, "--name", "n", "--flag", "true").called_with == {"name": "n", "flag": True}
    (made,) = HfArgumentParser(Recorder).parse_dict({"name": "n"})
    assert made.called_with == {"name": "n"}


def test_a_namespace_has_every_default():
    values = vars(HfArgumentParser(Recorder).parse_args([]))
    assert values == {f.name: getattr(Recorder(), f.name) for f in dataclasses.fields(Recorder)}
    assert vars(HfArgumentParser(Recorder).parse_known_args(["--name", "m"])[0])["name"] == "m"


def test_set_defaults_are_overridden_by_given_values():
    parser = HfArgumentParser(Recorder)
    parser.set_defaults(name="m", numbers=[2], other=1)
    assert vars(parser.parse_args([]))["name"] == "m"
    made, others = parser.parse_args_into_dataclasses([])
    assert made.called_with == {"name": "m", "numbers": [2]}
    assert others == argparse.Namespace(other=1)
    assert parser.parse_args_into_dataclasses(["--name", "n"])[0].name == "n"


def test_a_default_of_text_is_read_where_text_is_no_value():
    assert parse(with_field(int, "3")).the_field == 3
    parser = HfArgumentParser(with_field(int, 1))
    parser.set_defaults(the_field="3")
    assert parser.parse_args_into_dataclasses([])[0].the_field == 3
    assert parse(with_field(Literal["a", "b"], "c")).the_field == "c"


def test_a_default_that_cannot_be_read_exits(capsys):
    assert "the default of --the_field, 'x', cannot be read" in refused(capsys, with_field(int, "x"))


def test_defaults_of_a_list_are_not_shared():
    parser = HfArgumentParser(Recorder)
    parser.parse_args_into_dataclasses([])[0].numbers.append(2)
    assert parser.parse_args_into_dataclasses([])[0].numbers == [1]


def test_a_default_of_a_list_that_is_no_list_stays():
    assert parse(with_field(list[int], (1, 2))).the_field == (1, 2)
    assert parse(with_field(Union[str, list[str]], "x")).the_field == "x"


def test_required_fields_and_fields_of_subclasses(capsys):
    @dataclass
    class Base:
        need: str
        a: int = 1

    @dataclass
    class Child(Base):
        a: int = 2
        b: int = field(default=3, kw_only=True)

    assert parse(Child, "--need", "x", "--b", "4") == Child("x", b=4)
    assert "the following arguments are required: --need" in refused(capsys, Child, "--b", "4")
    with pytest.raises(ConfigError, match="Child needs need") as caught:
        HfArgumentParser(Child).parse_dict({"b": 1})
    assert isinstance(caught.value, TypeError)


def test_metadata_meant_for_argparse_arrives_and_other_metadata_does_not_disturb():
    cls = with_field(str, "a", metadata={"nargs": "?", "const": "K", "unit": "metres"})
    assert parse(cls, "--the_field").the_field == "K"
    assert parse(with_field(list[int], None, metadata={"nargs": "*"}), "--the_field").the_field == []
    cls = with_field(Optional[list], None, metadata={"action": "append"})
    assert parse(cls, "--the_field", "a", "--the_field", "b").the_field == [["a"], ["b"]]
    assert parse(cls).the_field is None


# --- around the dataclasses ------------------------------------------------------------------------------------------


def test_further_options_come_back_in_a_namespace():
    parser = HfArgumentParser(with_field(int, 1))
    parser.add_argument("--more", type=int, default=2)
    parser.add_argument("place", nargs="?")
    made, others, rest = parser.parse_args_into_dataclasses(
        ["here", "--the_field", "3", "--bogus"], return_remaining_strings=True
    )
    assert (made.the_field, others, rest) == (3, argparse.Namespace(more=2, place="here"), ["--bogus"])


def test_unknown_words_are_an_error_with_the_nearest_option():
    with pytest.raises(ValueError, match="not used by the HfArgumentParser: \\['--the_feild', '2', 'x'\\]") as caught:
        parse(with_field(int, 1), "--the_feild", "2", "x")
    assert caught.value.fix == "did you mean --the_field for --the_feild?"


def test_parse_args_exits_with_the_nearest_option(capsys):
    with pytest.raises(SystemExit) as caught:
        HfArgumentParser(with_field(int, 1)).parse_args(["--the-feild=2"])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "unrecognized arguments: --the-feild=2 (did you mean --the_field for --the-feild?)" in error
    with pytest.raises(argparse.ArgumentError, match="did you mean"):
        HfArgumentParser(with_field(int, 1), exit_on_error=False).parse_args(["--the-feild=2"])


def test_an_error_does_not_print_the_usage(capsys):
    error = refused(capsys, TrainingArguments, "--learning_rate", "fast")
    assert "argument --learning_rate/--learning-rate: invalid float value: 'fast'" in error
    assert len(error.splitlines()) == 2


def test_words_after_subcommands():
    parser = HfArgumentParser(with_field(int, 1))
    parser.add_subparsers(dest="command").add_parser("train", dataclass_types=Recorder)
    made, others = parser.parse_args_into_dataclasses(["--the_field", "2", "train", "--name", "m"])
    assert made.the_field == 2
    assert (others.command, others.name, others.flag) == ("train", "m", True)


# --- files of words --------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    (tmp_path / "one.args").write_text("--the_field 11\n--name one")
    (tmp_path / "two.args").write_text("--the_field 22")
    (tmp_path / "script.py").write_text("")
    (tmp_path / "script.args").write_text("--the_field 33")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "script.py"), "--name", "typed"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@dataclass
class Filed:
    the_field: int = 1
    name: str = "n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (33, "typed")),
        ({"look_for_args_file": False}, (1, "typed")),
        ({"args": ["--name", "x"]}, (33, "x")),
        ({"args_filename": "one.args"}, (11, "typed")),
        ({"args_filename": Path("one.args"), "look_for_args_file": False}, (11, "typed")),
        ({"args": ("--the_field", "2"), "args_filename": "one.args"}, (2, "one")),
        ({"args": ["--cfg", "one.args"], "args_file_flag": "--cfg"}, (11, "one")),
        ({"args": ["--cfg", "one.args", "--cfg=two.args"], "args_file_flag": "--cfg"}, (22, "one")),
        ({"args": ["--cfg", "two.args", "--cfg", "one.args"], "args_file_flag": "cfg"}, (11, "one")),
        ({"args": ["--cfg", "two.args"], "args_file_flag": "--cfg", "args_filename": "one.args"}, (22, "one")),
        ({"args": ["--the_field", "2", "--cfg", "one.args"], "args_file_flag": "--cfg"}, (2, "one")),
    ],
    ids=str,
)
def test_files_come_before_the_command_line(files, options, expected):
    (made,) = HfArgumentParser(Filed).parse_args_into_dataclasses(**options)
    assert (made.the_field, made.name) == expected


def test_a_file_beside_the_script_is_mentioned(files, capsys):
    HfArgumentParser(Filed).parse_args_into_dataclasses()
    assert "arguments are read from" in capsys.readouterr().err


def test_a_file_that_is_not_there(files, capsys):
    parser = HfArgumentParser(Filed)
    assert parser.parse_args_into_dataclasses(args_filename="none.args") == (Filed(name="typed"),)
    assert "none.args does not exist" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"--cfg none.args: there is no such file"):
        parser.parse_args_into_dataclasses(["--cfg", "none.args"], args_file_flag="--cfg")


def test_the_flag_of_a_file_is_not_abbreviated(files):
    cls = dataclasses.make_dataclass("Config", [("config", str, "none")])
    (made,) = HfArgumentParser(cls).parse_args_into_dataclasses(
        ["--config", "x"], look_for_args_file=False, args_file_flag="--config_file"
    )
    assert made.config == "x"


def test_without_a_script(monkeypatch):
    parser = HfArgumentParser(Filed)
    for argv in ([""], ["-c"]):
        monkeypatch.setattr(sys, "argv", argv)
        assert parser.parse_args_into_dataclasses() == (Filed(),)


# --- names and values ------------------------------------------------------------------------------------------------


def test_a_dict_is_taken_as_it_is():
    parser = HfArgumentParser((Filed, dataclasses.make_dataclass("B", [("b", int, 2)])))
    given = {"the_field": "3", "b": 4}
    made, other = parser.parse_dict(given)
    assert (made.the_field, other.b, given) == ("3", 4, {"the_field": "3", "b": 4})


def test_unknown_keys_are_an_error_with_the_nearest_field():
    parser = HfArgumentParser(Filed)
    with pytest.raises(ValueError, match=r"keys not used by the HfArgumentParser: \['the-field', 'zzz'\]") as caught:
        parser.parse_dict({"the-field": 1, "zzz": 2})
    assert caught.value.fix == "did you mean the_field for the-field?"


def test_allowed_extra_keys_are_noted_if_a_field_is_similar(capsys):
    parser = HfArgumentParser(Filed)
    assert parser.parse_dict({"zzz": 2}, allow_extra_keys=True) == (Filed(),)
    assert capsys.readouterr().err == ""
    assert parser.parse_dict({"the_feild": 2}, allow_extra_keys=True) == (Filed(),)
    assert "did you mean the_field for the_feild?" in capsys.readouterr().err


@pytest.mark.parametrize("content", [[1], "text", None])
def test_something_that_is_not_a_dict(content):
    with pytest.raises(ConfigError, match="the dict holds a"):
        HfArgumentParser(Filed).parse_dict(content)


def test_json(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('{"the_field": 3, "name": "ü"}', encoding="utf-8")
    parser = HfArgumentParser(Filed)
    assert parser.parse_json_file(file) == parser.parse_json_file(str(file)) == (Filed(3, "ü"),)
    file.write_text('{"feild": 3}')
    with pytest.raises(ConfigError, match="keys not used") as caught:
        parser.parse_json_file(file)
    assert "a.json" in caught.value.why
    assert parser.parse_json_file(file, allow_extra_keys=True) == (Filed(),)
    file.write_text("{,}")
    with pytest.raises(ConfigError, match=r"a.json is not valid JSON"):
        parser.parse_json_file(file)
    file.write_text("[1]")
    with pytest.raises(ConfigError, match=r"a.json holds a list"):
        parser.parse_json_file(file)
    with pytest.raises(FileNotFoundError):
        parser.parse_json_file(tmp_path / "none.json")


@dataclass
class Rates:
    rate: float = 1.0
    maybe: float | None = None
    several: list[float] = field(default_factory=list)
    text: str = ""
    either: float | str = 0.0
    whole: int = 1

    __old_spellings__ = {"ratio": float | None}

    def __init__(self, ratio: Any = None, **given: Any) -> None:
        self.ratio = ratio
        self.given = given


def test_yaml(tmp_path, capsys):
    pytest.importorskip("yaml")
    file = tmp_path / "a.yaml"
    parser = HfArgumentParser(Filed)
    file.write_text("the_field: 3\nname: ü\n", encoding="utf-8")
    assert parser.parse_yaml_file(file) == (Filed(3, "ü"),)
    file.write_text("# nothing yet")
    assert parser.parse_yaml_file(file) == (Filed(),)
    file.write_text("- 1")
    with pytest.raises(ConfigError, match=r"a.yaml holds a list"):
        parser.parse_yaml_file(file)
    file.write_text("x: [")
    with pytest.raises(ConfigError, match=r"a.yaml is not valid YAML"):
        parser.parse_yaml_file(file)
    file.write_text("the_feild: 3")
    with pytest.raises(ConfigError, match="keys not used"):
        parser.parse_yaml_file(file)
    assert parser.parse_yaml_file(file, allow_extra_keys=True) == (Filed(),)
    capsys.readouterr()


def test_yaml_numbers_that_yaml_takes_for_text(tmp_path, capsys):
    pytest.importorskip("yaml")
    file = tmp_path / "a.yaml"
    file.write_text("rate: 1e-4\nmaybe: 1e5\nseveral: [1e-4, 2]\ntext: 1e-4\neither: 1e-4\nwhole: 1e3\nratio: 1e-2\n")
    (made,) = HfArgumentParser(Rates).parse_yaml_file(file)
    assert made.given == {
        "rate": 1e-4,
        "maybe": 1e5,
        "several": [1e-4, 2],
        "text": "1e-4",
        "either": "1e-4",
        "whole": "1e3",
    }
    assert made.ratio == 0.01
    said = capsys.readouterr().err
    assert "rate: 1e-4, maybe: 1e5, several: ['1e-4', 2], ratio: 1e-2" in said
    file.write_text("rate: 1.0e-4\nmaybe: .nan\ntext: abc\n")
    HfArgumentParser(Rates).parse_yaml_file(file)
    assert capsys.readouterr().err == ""


def test_yaml_without_pyyaml(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        HfArgumentParser(Filed).parse_yaml_file(tmp_path / "a.yaml")
    assert "pip install pyyaml" in caught.value.fix


# --- old spellings ---------------------------------------------------------------------------------------------------


@dataclass
class Renamed:
    strategy: str = "no"

    __old_spellings__ = {
        "old_strategy": str | None,
        "no_gpu": bool,
        "ratio": float,
        "safe": bool,
        "maybe": bool | None,
    }

    def __init__(self, strategy: str = "no", **old: Any) -> None:
        self.strategy = strategy
        self.old = old


@pytest.mark.parametrize(
    ("words", "old"),
    [
        ([], {}),
        (["--old_strategy", "steps"], {"old_strategy": "steps"}),
        (["--old-strategy=steps", "--no_gpu"], {"old_strategy": "steps", "no_gpu": True}),
        (["--no-gpu", "false", "--ratio", "0.1"], {"no_gpu": False, "ratio": 0.1}),
        (["--no_safe", "--maybe", "true"], {"safe": False, "maybe": True}),
    ],
)
def test_old_spellings_reach_the_dataclass_under_their_names(words, old):
    made = parse(Renamed, "--strategy", "new", *words)
    assert (made.strategy, made.old) == ("new", old)


def test_old_spellings_are_hidden_absent_and_checked(capsys):
    parser = HfArgumentParser(Renamed)
    assert vars(parser.parse_args([])) == {"strategy": "no"}
    assert "old" not in parser.format_help()
    assert "invalid float value" in refused(capsys, Renamed, "--ratio", "x")
    with pytest.raises(ConfigError) as caught:
        parse(Renamed, "--old_stratgy", "x")
    assert "--old_strategy" not in caught.value.fix


def test_old_spellings_in_dicts_and_files(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('{"strategy": "new", "ratio": 0.5}')
    (made,) = HfArgumentParser(Renamed).parse_json_file(file)
    assert (made.strategy, made.old) == ("new", {"ratio": 0.5})


def test_a_name_in_use_is_not_an_old_spelling():
    own = dataclasses.make_dataclass("Own", [("ratio", int, 1)])
    made, other = HfArgumentParser((Renamed, own)).parse_args_into_dataclasses(["--ratio", "2"])
    assert (made.old, other.ratio) == ({}, 2)
    made, other = HfArgumentParser((Renamed, own)).parse_dict({"ratio": 2})
    assert (made.old, other.ratio) == ({}, 2)
    parser = HfArgumentParser(Renamed)
    parser.add_argument("--ratio", type=str)
    made, others = parser.parse_args_into_dataclasses(["--ratio", "text"])
    assert (made.old, others) == ({}, argparse.Namespace(ratio="text"))
    cuda = dataclasses.make_dataclass("Cuda", [("gpu", bool, True)])  # its opposite is --no_gpu
    made, other = HfArgumentParser((Renamed, cuda)).parse_args_into_dataclasses(["--no_gpu"])
    assert (made.old, other.gpu) == ({}, False)


def test_old_names_of_training_arguments(tmp_path):
    words = ["--evaluation_strategy", "epoch", "--no_cuda", "--warmup_ratio", "0.1", "--overwrite_output_dir"]
    args = parse(TrainingArguments, "--output_dir", str(tmp_path), *words)
    assert (args.eval_strategy, args.use_cpu, args.warmup_steps) == ("epoch", True, 0.1)


# --- help ------------------------------------------------------------------------------------------------------------


@dataclass
class First:
    """What comes first.

    And more.
    """

    alpha_one: float = field(default=0.5, metadata={"help": "50% of it, 10%% more"})


@dataclass
class Second(First):
    alpha_one: float = 0.25
    color: Color = Color.RED
    share: str = HfArg(default="100%", help="Its %(default)s share.")
    beta: bool = HfArg(default=True, aliases=["-b"])


def test_help_is_grouped_by_the_class_that_declares_a_field():
    text = HfArgumentParser((Second, with_field(int))).format_help()
    assert "\nFirst:\n  What comes first.\n\n  --alpha_one FLOAT" in text
    assert "\nSecond:\n  --color" in text
    assert "--the_field INT       (required)" in text


def test_help_says_text_and_default():
    text = HfArgumentParser(First).format_help()
    assert "50% of it, 10% more (default: 0.5)" in text
    text = HfArgumentParser(Second).format_help()
    assert "(default: 0.25)" in text
    assert re.search(r"--color \{red,blue,3\}\s+\(default: red\)", text)
    assert "Its 100% share." in text
    assert "--beta, -b [BOOL]" in text
    assert "--no_beta             The opposite of --beta." in text
    parser = HfArgumentParser(First)
    parser.set_defaults(alpha_one=0.75)
    assert "(default: 0.75)" in parser.format_help()


def test_a_group_may_have_a_name_of_its_own():
    class Named(Second):
        _argument_group_name = "My group"

    text = HfArgumentParser(dataclass(Named)).format_help()
    assert "\nMy group:\n" in text
    assert "First:" not in text


def test_help_of_training_arguments_goes_by_subject(capsys):
    with pytest.raises(SystemExit) as caught:
        parse(TrainingArguments, "--help")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "\nSchedule arguments:\n  Learning rate and its schedule.\n\n  --learning_rate FLOAT" in text
    assert "\nCheckpoint arguments:\n" in text
    assert "(default: 5e-05)" in text
    assert text.startswith(f"usage: {Path(sys.argv[0]).name} [options]\n")
    assert "evaluation_strategy" not in text


def test_another_help_formatter():
    parser = HfArgumentParser(Second, formatter_class=argparse.RawTextHelpFormatter)
    assert "50% of" not in parser.format_help()
    assert "(default: 0.25)" in parser.format_help()


# --- the usual three -------------------------------------------------------------------------------------------------


@dataclass
class ModelArguments:
    """Which model is trained, and where its pieces come from."""

    model_name_or_path: Optional[str] = field(default=None, metadata={"help": "The weights to begin with."})
    model_type: Optional[str] = field(default=None, metadata={"help": "From scratch: one of bert, gpt2."})
    config_name: Optional[str] = field(default=None, metadata={"help": "A configuration of another name."})
    tokenizer_name: Optional[str] = field(default=None, metadata={"help": "A tokenizer of another name."})
    cache_dir: Optional[str] = field(default=None, metadata={"help": "Where downloads are kept."})
    use_fast_tokenizer: bool = field(default=True, metadata={"help": "Take the tokenizer written in Rust."})
    model_revision: str = field(default="main", metadata={"help": "A branch, a tag or a commit."})
    use_auth_token: bool = field(default=False, metadata={"help": "Send the token of the last login."})


@dataclass
class DataTrainingArguments:
    """Which texts the model sees."""

    dataset_name: Optional[str] = field(default=None, metadata={"help": "A data set of the hub."})
    train_file: Optional[str] = field(default=None, metadata={"help": "A file of texts to train on."})
    validation_file: Optional[str] = field(default=None, metadata={"help": "A file of texts to evaluate on."})
    max_seq_length: int = field(default=128, metadata={"help": "Longer texts are cut."})
    overwrite_cache: bool = field(default=False, metadata={"help": "Prepare the texts anew."})
    preprocessing_num_workers: Optional[int] = field(default=None, metadata={"help": "Processes that prepare."})
    mlm_probability: float = field(default=0.15, metadata={"help": "How many of 100% of tokens are hidden."})
    max_train_samples: Optional[int] = field(default=None, metadata={"help": "Take only so many rows."})

    def __post_init__(self) -> None:
        if self.dataset_name is None and self.train_file is None and self.validation_file is None:
            raise ValueError("Need either a dataset name or a training/validation file.")


SETTINGS: dict[str, Any] = {
    "model_name_or_path": "tiny",
    "use_fast_tokenizer": False,
    "train_file": "train.txt",
    "preprocessing_num_workers": 2,
    "output_dir": "out",
    "do_train": True,
    "learning_rate": 1e-4,
    "per_device_train_batch_size": 4,
    "eval_strategy": "epoch",
    "lr_scheduler_kwargs": {},
    "use_cpu": True,
}
COMMAND_LINE = """
    --model_name_or_path tiny --no_use_fast_tokenizer --train_file train.txt --preprocessing-num-workers 2
    --output_dir out --do_train --learning_rate 1e-4 --per_device_train_batch_size=4 --eval_strategy epoch
    --lr_scheduler_kwargs {} --use_cpu
"""


def script_main() -> tuple[Any, ...]:
    """How scripts begin."""
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        return parser.parse_json_file(json_file=str(Path(sys.argv[1]).resolve()))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".yaml"):
        return parser.parse_yaml_file(yaml_file=str(Path(sys.argv[1]).resolve()))
    return parser.parse_args_into_dataclasses()


@pytest.mark.parametrize("form", ["words", "json", "yaml"])
def test_three_dataclasses_from_every_source(form, tmp_path, monkeypatch):
    words = COMMAND_LINE.split()
    if form == "json":
        (tmp_path / "a.json").write_text(json.dumps(SETTINGS))
        words = [str(tmp_path / "a.json")]
    if form == "yaml":
        yaml = pytest.importorskip("yaml")
        (tmp_path / "a.yaml").write_text(yaml.safe_dump(SETTINGS).replace("0.0001", "1e-4"))
        words = [str(tmp_path / "a.yaml")]
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "script.py"), *words])
    model_args, data_args, training_args = script_main()
    assert model_args == ModelArguments(model_name_or_path="tiny", use_fast_tokenizer=False)
    assert data_args == DataTrainingArguments(train_file="train.txt", preprocessing_num_workers=2)
    own = {name: value for name, value in SETTINGS.items() if name in vars(training_args)}
    assert training_args == TrainingArguments(**own)
    assert training_args.learning_rate == 1e-4
    assert training_args.do_eval


def test_training_arguments_know_what_was_given(tmp_path):
    args = parse(TrainingArguments, "--output_dir", str(tmp_path), "--use_cpu", "--learning_rate", "5e-5")
    assert args == TrainingArguments(str(tmp_path), use_cpu=True, learning_rate=5e-5)
    given = [name for name, origin in args._record.origins.items() if origin.kind == "given"]
    assert sorted(given) == ["learning_rate", "output_dir", "use_cpu"]


def test_errors_of_the_dataclass_itself_come_through():
    with pytest.raises(ValueError, match="Need either a dataset name"):
        HfArgumentParser(DataTrainingArguments).parse_args_into_dataclasses([])


def test_several_values_where_training_arguments_take_one_or_many(tmp_path):
    words = ["--output_dir", str(tmp_path), "--use_cpu", "--include_for_metrics", "loss", "--label_names", "a", "b"]
    args = parse(Seq2SeqTrainingArguments, *words, "--include_num_input_tokens_seen", "non_padding")
    assert (args.include_for_metrics, args.label_names) == (["loss"], ["a", "b"])
    assert args.include_num_input_tokens_seen == "non_padding"
