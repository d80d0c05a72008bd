"""Files of options: `--config run.yaml`, or the file alone as the first word."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any

from ostinato import ConfigError, HfArgumentParser

from ..arguments.parser_files import read_json, read_yaml

ENDINGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Options:
    """The options of files and the command line. The words of files come first, so the command line has precedence."""

    words: list[str]
    defaults: dict[str, Any] = field(default_factory=dict)  # null and [], which no word can express


def read_options(words: Sequence[str], parser: HfArgumentParser) -> Options:
    """Return the options of the files named by --config, and those of the command line.

    Every value of a file is tried on the `parser` alone, so that the error about a wrong one names the file. The
    parser must raise (`exit_on_error=False`) and take no abbreviations (`allow_abbrev=False`).

    >>> read_options(["--seed", "1"], HfArgumentParser()).words
    ['--seed', '1']
    """
    if words and words[0].endswith(ENDINGS) and not words[0].startswith("-"):
        words = ["--config", *words]  # as `python run_glue.py arguments.json`
    of_files: dict[str, list[str]] = {}  # by name: a later file takes precedence
    defaults: dict[str, Any] = {}
    rest: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word == "--config":
            file = next(remaining, None)
            if file is None:
                raise ConfigError(
                    "--config has no value", "it is the last word of the command line", "write --config run.yaml"
                )
        elif word.startswith("--config="):
            file = word.partition("=")[2]
        else:
            rest.append(word)
            continue
        for name, value in _read_file(file).items():
            of_files[name] = _format_words(name, value)
            _check_value(name, of_files[name], file, parser)
            defaults.pop(name, None)
            if not of_files[name]:
                defaults[name] = value
    return Options([*chain.from_iterable(of_files.values()), *rest], defaults)


def _format_words(name: str, value: Any) -> list[str]:
    if value is None or value == []:
        return []
    if isinstance(value, Mapping):
        return [f"--{name}", json.dumps(value)]
    if isinstance(value, list):
        return [f"--{name}", *(json.dumps(each) if isinstance(each, Mapping) else str(each) for each in value)]
    return [f"--{name}={str(value).lower() if isinstance(value, bool) else value}"]


def _check_value(name: str, words: list[str], file: str, parser: HfArgumentParser) -> None:
    try:
        _, unknown = parser.parse_known_args(words or [f"--{name}=0"])
    except argparse.ArgumentError as error:
        if words:
            raise ConfigError(
                what=f"{file}: the value of {name!r} cannot be used",
                why=error.message,
                fix="correct it; values are parsed as on the command line",
            ) from None
        return  # null, for an option that takes other words than 0
    if unknown:
        names = [each.name for kind in parser.dataclass_types for each in fields(kind)]
        near = get_close_matches(name, names, n=1)
        raise ConfigError(
            what=f"{file}: there is no option {name!r}",
            why=f"the nearest is {near[0]!r}" if near else "no option has a similar name",
            fix=f"write {near[0]}" if near else "--help lists every option",
        )


def _read_file(file: str) -> Mapping[str, Any]:
    path = Path(file)
    if not path.is_file():
        beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        near = get_close_matches(path.name, [name for name in beside if name.endswith(ENDINGS)], n=1)
        raise ConfigError(
            what=f"--config {file}: there is no such file",
            why=f"the directory searched is {path.parent.resolve()}",
            fix=f"did you mean {path.with_name(near[0])}?" if near else "check the path",
        )
    content = read_json(path) if path.suffix == ".json" else read_yaml(path)
    if "config" in content:
        raise ConfigError(
            f"{file} names another file", "a file of options cannot include another", "remove `config` from it"
        )
    return {str(name).replace("-", "_"): value for name, value in content.items()}
