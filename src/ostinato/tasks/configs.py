"""A file of options: `--config run.yaml`, or the file alone in place of all options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ostinato import ConfigError

ENDINGS = (".yaml", ".yml", ".json")


def with_config(words: Sequence[str]) -> list[str]:
    """The options of the files named by --config, before those of the command line, which count more.

    >>> with_config(["--seed", "1"])
    ['--seed', '1']
    """
    if len(words) == 1 and words[0].endswith(ENDINGS) and not words[0].startswith("-"):
        return _as_words(_read(words[0]), words[0])  # as `python run_glue.py arguments.json`
    before: list[str] = []
    rest: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word == "--config":
            file = next(remaining, None)
            if file is None:
                raise ConfigError("--config names no file", "it is the last word", "write --config run.yaml")
        elif word.startswith("--config="):
            file = word.partition("=")[2]
        else:
            rest.append(word)
            continue
        before += _as_words(_read(file), file)
    return [*before, *rest]


def _as_words(content: Mapping[str, Any], file: str) -> list[str]:
    words: list[str] = []
    for name, value in content.items():
        if value is None:
            continue
        if isinstance(value, Mapping):
            words += [f"--{name}", json.dumps(value)]
        elif isinstance(value, list):
            words += [f"--{name}", *map(str, value)]
        else:
            words.append(f"--{name}={str(value).lower() if isinstance(value, bool) else value}")
    if "config" in content:
        raise ConfigError(f"{file} names another file", "options are read from one file", "leave `config` out of it")
    return words


def _read(file: str) -> Mapping[str, Any]:
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"--config {file}: there is no such file", f"looked in {path.parent.resolve()}", "check it")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return _named(_parsed(json.loads, text, file, "JSON", ValueError), file)
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise ConfigError(
            f"{file} cannot be read", "YAML needs PyYAML", "pip install 'ostinato[yaml]', or write JSON"
        ) from None
    return _named(_parsed(yaml.safe_load, text, file, "YAML", yaml.YAMLError) or {}, file)


def _parsed(parse: Any, text: str, file: str, kind: str, errors: type[Exception]) -> Any:
    try:
        return parse(text)
    except errors as error:
        raise ConfigError(f"{file} is not valid {kind}", " ".join(str(error).split()), "mend that place") from error


def _named(content: Any, file: str) -> Mapping[str, Any]:
    if isinstance(content, Mapping):
        return content
    raise ConfigError(f"{file} holds a {type(content).__name__}", "options are names with values", "write name: value")
