"""Every command of the documentation exists: subcommands, flags, make targets, files and extras are checked.

Most commands name models, files or machines of the reader, so they cannot run here: the parser that would read them
does. The commands of the case study run in `test_case_studies.py`, the samples of all recipes in `tests/tasks`.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ostinato import cli
from ostinato.cli import train_command
from tests.support.apis import load_library

if sys.version_info >= (3, 11):
    import tomllib

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))]
FENCE = re.compile(
    r"^(?P<indent>[ \t]*)```[ ]*(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```[ ]*$", re.M | re.S
)
SHELLS = ("bash", "sh", "console", "shell")
WITHOUT_CHECK = {"git", "cd", "source", "python3.11", "host=$(scontrol", "head"}  # of the system, not of ours


def find_blocks(*languages: str) -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for block in FENCE.finditer(page.read_text("utf-8")):
            if block["language"] in languages:
                yield page, block["code"]


def join_lines(code: str) -> list[str]:
    return re.sub(r"\\\n\s*", " ", code).splitlines()


def list_commands() -> list[tuple[str, str]]:
    """The commands of all pages, each with its page; lines that end in a backslash are joined."""
    found = []
    for page, code in find_blocks(*SHELLS):
        lines = join_lines(code)
        found += [(page.name, line.strip()) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    for page, code in find_blocks("text", ""):
        found += [(page.name, line[2:]) for line in join_lines(code) if line.startswith("$ ")]
    return found


def split_words(command: str) -> list[str]:
    """The words of a command without its comment, what it is piped into, and `…`."""
    words = shlex.split(command, comments=True)
    ends = [place for place, word in enumerate(words) if word in (">", "2>")]
    return [word for word in words[: ends[0] if ends else None] if word not in ("…", "...")]


def check_ostinato(words: list[str]) -> None:
    """Parse the words after `ostinato` as the command would."""
    words, of_script = cli._split_script_options(words)
    if words and words[-1] in ("--help", "--version"):
        assert words[:-1] == [] or words[0] in cli.COMMANDS, words
        words = words[:-1]
    options = cli._build_parser().parse_args(words)
    if of_script is not None:
        options.arguments = of_script
    if options.command == "launch":
        rest = [options.script, *options.arguments] if getattr(options, "script", None) else options.arguments
        if rest and rest[0] in ("exec", "train"):
            check_ostinato(rest)
    if options.command == "train" and options.task is not None:
        check_task(options.task, options.arguments)


def check_task(task: str, words: list[str]) -> None:
    from ostinato.tasks import command, find_recipe

    _, words = train_command._split_search(words)
    if words and words[0].endswith(".yaml"):
        words = words[1:]
    if "--config" in words:
        del words[words.index("--config") : words.index("--config") + 2]
    parser = command._build_parser(find_recipe(task), allow_abbrev=False, exit_on_error=False)
    _, unknown = parser.parse_known_args([*words, "--output_dir", "out"])
    assert not unknown, unknown


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)[0].split()
    assert {word for word in words if "=" not in word} <= set(targets), words


def check_python(words: list[str]) -> None:
    if words[:2] == ["-m", "tools.docs"]:
        return
    script = ROOT / words[0]
    assert script.is_file() or "/" not in words[0], words  # a name without a directory is the reader's own script


def check_pip(words: list[str]) -> None:
    extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text("utf-8").split("optional-dep")[1], re.M)
    asked = [extra for word in words if "[" in word for extra in word.split("[")[1].rstrip("]").split(",")]
    assert set(asked) <= set(extras), words
    files = [words[place + 1] for place, word in enumerate(words) if word == "-c"]
    assert all((ROOT / name).is_file() for name in files), words


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "ostinato": check_ostinato,
    "make": check_make,
    "python": check_python,
    "pip": check_pip,
}


def check_command(command: str) -> str:
    """Check a command; return what kind it is."""
    for part in re.split(r"\s\|\s", command):
        words = split_words(part)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        own = next(
            (place for place, word in enumerate(words) if word == "ostinato" and words[0] not in ("git", "pip")), None
        )
        if own is not None:  # also behind torchrun and srun
            check_ostinato(words[own + 1 :])
        elif words and words[0] in ("torchrun", "echo"):
            continue
        elif words:
            assert words[0] in CHECKS or words[0] in WITHOUT_CHECK, f"what is {words[0]!r}?"
            CHECKS.get(words[0], lambda _: None)(words[1:])
    return command.split()[0]


def test_every_command_exists() -> None:
    load_library("transformers")
    failed = []
    for page, command in list_commands():
        try:
            check_command(command)
        except (AssertionError, SystemExit, argparse.ArgumentError, ValueError) as error:
            failed.append(f"{page}: {command}: {error!r}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize(
    "command",
    [
        "ostinato trian x",
        "ostinato report",
        "ostinato train clm --block_sise 4",
        "ostinato train nothing --sample",
        "make docks",
        "python benchmarks/none.py",
        "pip install '.[hff]'",
        "bert --train",
    ],
)
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    with pytest.raises((AssertionError, SystemExit, argparse.ArgumentError, ValueError)):
        check_command(command)


def test_data_of_other_languages_can_be_read() -> None:
    yaml = pytest.importorskip("yaml")
    for page, code in find_blocks("yaml"):
        assert list(yaml.safe_load_all(code)), page
    for _, code in find_blocks("json"):
        text = re.sub(r",\s*…", "", code).replace("…", "")
        try:
            json.loads(text)
        except json.JSONDecodeError:  # JSON Lines
            for line in re.sub(r",\n\s+", ", ", text).splitlines():
                json.loads(line)
    if sys.version_info >= (3, 11):
        for page, code in find_blocks("toml"):
            assert tomllib.loads(code), page


def test_python_is_marked_as_python() -> None:
    """A block without a language, or of text, that is a program would not be run by `test_pages_run.py`."""
    for page, code in find_blocks("", "text", "pycon"):
        assert not re.search(r"^(import \w+$|from \w[\w.]* import |def \w+\(|class \w+[(:])", code, re.M), (page, code)
