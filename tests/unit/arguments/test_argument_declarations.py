"""A declaration is all that an argument needs to be checked, parsed, explained and compared on resume."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy
import pytest

from ostinato import ConfigError, HfArgumentParser, NotSupportedError, TrainingArguments
from ostinato.arguments.argument import Range, Unsupported, argument, get_declarations
from ostinato.arguments.resume_diff import find_changes
from ostinato.arguments.resume_rules import ResumeContext, change_numbers, keep_numbers
from ostinato.core.choices import Choice
from tests.support.apis import load_library


class Curve(Choice):
    FLAT = "flat"
    STEEP = "steep"


@dataclass(repr=False)
class NoiseArguments(TrainingArguments):
    """Noise of the inputs."""

    noise: float = argument(
        0.0,
        help="Strength of the noise added to inputs.",
        number=Range(minimum=0, maximum=1),
        on_resume=change_numbers,
    )
    noise_kind: str = argument(
        "normal",
        help="Distribution of the noise.",
        choices=("normal", "uniform"),
        on_resume=change_numbers,
    )
    noise_curve: Curve | str = argument(
        "flat",
        help="How the noise changes during training.",
        choices=Curve,
        on_resume=keep_numbers,
    )
    noise_columns: list[str] | None = argument(
        None,
        help="Columns that receive noise.",
        kind=list,
        choices=("x", "y"),
        on_resume=None,
    )
    noise_model: str | None = argument(
        None,
        help="A model that generates the noise.",
        unsupported=Unsupported(why="there is none", fix="leave it out"),
        on_resume=None,
    )


def make(**given: Any) -> NoiseArguments:
    return NoiseArguments(**{"output_dir": "out", "use_cpu": True, **given})


# --- checked ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"noise": 1.5}, "noise=1.5 is not a number of at least 0 and of at most 1"),
        ({"noise": None}, "noise=None is not a number"),
        ({"noise": "0.5"}, "1.0e-4 a number"),
        ({"noise_kind": "pink"}, "the choices are 'normal', 'uniform'"),
        ({"noise_curve": "step"}, "did you mean 'steep'?"),
        ({"noise_columns": "x"}, r"set noise_columns=\['x'\]"),
        ({"noise_columns": ["x", "z"]}, "leave out 'z'"),
    ],
)
def test_values_are_checked(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make(**given)


def test_what_is_not_supported_is_refused() -> None:
    with pytest.raises(NotSupportedError, match="noise_model='big' is not supported"):
        make(noise_model="big")


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ConfigError, match="3 problems") as caught:
        make(noise=2, noise_kind="pink", learning_rate=-1)
    assert all(name in str(caught.value) for name in ("noise=2", "noise_kind", "learning_rate=-1"))


def test_a_word_becomes_a_member_of_its_enum() -> None:
    assert make(noise_curve="steep").noise_curve is Curve.STEEP


def test_another_default_keeps_the_declaration() -> None:
    @dataclass(repr=False)
    class Loud(NoiseArguments):
        noise: float = 0.5
        learning_rate: float = dataclasses.field(default=1e-3)

    assert Loud("out", use_cpu=True).noise == 0.5
    assert get_declarations(Loud)["noise"] is get_declarations(NoiseArguments)["noise"]
    with pytest.raises(ConfigError, match="2 problems"):
        Loud("out", use_cpu=True, noise=2.0, learning_rate=-1.0)


# --- parsed ----------------------------------------------------------------------------------------------------------


def parse(parser: Any, *words: str) -> Any:
    return parser.parse_args_into_dataclasses(["--output_dir", "out", *words], look_for_args_file=False)[0]


def test_a_declared_argument_is_an_option(capsys: pytest.CaptureFixture) -> None:
    args = parse(HfArgumentParser(NoiseArguments), "--noise", "0.5", "--noise-kind", "uniform", "--noise_columns", "x")
    assert (args.noise, args.noise_kind, args.noise_columns) == (0.5, "uniform", ["x"])
    with pytest.raises(SystemExit):
        parse(HfArgumentParser(NoiseArguments), "--noise_kind", "unifrom")
    assert "did you mean uniform?" in capsys.readouterr().err
    assert "Strength of the noise added to inputs. (default: 0.0)" in HfArgumentParser(NoiseArguments).format_help()


def test_the_parser_of_transformers_reads_it_too() -> None:
    pytest.importorskip("transformers")
    theirs = load_library("transformers").HfArgumentParser
    args = parse(theirs(NoiseArguments), "--noise", "0.5", "--noise_kind", "uniform", "--use_cpu")
    assert (args.noise, args.noise_kind) == (0.5, "uniform")


# --- explained -------------------------------------------------------------------------------------------------------


def test_a_declared_argument_is_explained(capsys: pytest.CaptureFixture) -> None:
    make(noise=0.5).explain("noise")
    assert capsys.readouterr().out == (
        "Noise of the inputs.\n  noise = 0.5  (given)\n      Strength of the noise added to inputs.\n"
    )


# --- compared on resume ----------------------------------------------------------------------------------------------


def test_a_change_follows_its_rule() -> None:
    before, now = make(noise_columns=["x"]), make(noise=0.5, noise_curve="steep", noise_columns=["y"])
    changes = find_changes(NoiseArguments, before.to_dict(), now.to_dict(), ResumeContext(steps_before=8, steps_now=8))
    assert [(change.name, change.same_numbers) for change in changes] == [("noise", False), ("noise_curve", True)]


# --- ranges ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "inside", "outside", "text"),
    [
        (Range(minimum=1, whole=True), [1, numpy.int64(3)], [0, 1.0, "1", None], "a whole number of at least 1"),
        (Range(minimum=0, below=1), [0, 0.999], [1, -0.1, math.nan], "a number of at least 0 and below 1"),
        (Range(above=0, finite=True), [1e-9], [0, math.inf, math.nan], "a finite number above 0"),
        (Range(finite=True), [-1, numpy.float32(2)], [math.inf, -math.inf, "2"], "a finite number"),
        (Range(), [math.inf, 0], [math.nan, None, 1j], "a number"),
    ],
    ids=str,
)
def test_ranges(allowed: Range, inside: list[Any], outside: list[Any], text: str) -> None:
    assert all(value in allowed for value in inside)
    assert not any(value in allowed for value in outside)
    assert str(allowed) == text
