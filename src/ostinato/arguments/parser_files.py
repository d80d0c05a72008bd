"""Files with arguments: words as on a command line, or names and values in JSON or YAML."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from ..core.notices import note_once

# --- words -----------------------------------------------------------------------------------------------------------


def insert_files(
    words: list[str], filename: str | os.PathLike[str] | None, flag: str | None, *, look_beside_script: bool
) -> list[str]:
    """Return the words of all files with arguments, followed by those of the command line."""
    files: list[Path] = []
    if filename is not None:
        files = _find_file(Path(filename))
    elif look_beside_script and (script := _find_beside_script()):
        files = [script]
        note_once(f"arguments are read from {script}")
    if flag is not None:
        named, words = _split_off_files(flag, words)
        files += named
    return [*(word for file in files for word in file.read_text(encoding="utf-8").split()), *words]


def _find_beside_script() -> Path | None:
    """Return `train.args` next to `train.py`, if it exists."""
    script = Path(sys.argv[0] if sys.argv else "")
    file = script.with_suffix(".args") if script.name else None
    return file if file is not None and file.is_file() else None


def _find_file(file: Path) -> list[Path]:
    if file.is_file():
        return [file]
    note_once(f"{file} does not exist: no arguments are read from it")
    return []


def _split_off_files(flag: str, words: list[str]) -> tuple[list[Path], list[str]]:
    """Return the files that a command line names with an option, and its other words."""
    flag = flag if flag.startswith("-") else f"--{flag}"
    # No abbreviations: `--config` may be another option than `--config_file`.
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument(flag, dest="files", action="append", default=[])
    found, others = finder.parse_known_args(words)
    files = [Path(name) for name in found.files]
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise ConfigError(
            what=f"{flag} {missing[0]}: there is no such file",
            why="arguments should be read from it",
            fix=f"check the path; it is relative to {Path.cwd()}",
        )
    return files, others


# --- names and values ------------------------------------------------------------------------------------------------


def read_json(file: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the names and values of a JSON file."""
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file} is not valid JSON", str(error), "correct the file there") from error
    return check_mapping(content, str(file))


def read_yaml(file: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the names and values of a YAML file; an empty one has none."""
    yaml = _import_yaml(file)
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())
        raise ConfigError(f"{file} is not valid YAML", why, "correct the file there") from error
    return {} if content is None else check_mapping(content, str(file))


def check_mapping(content: Any, source: str) -> Mapping[str, Any]:
    """Return the content of a file or dict, or raise if it is not a mapping."""
    if isinstance(content, Mapping):
        return content
    raise ConfigError(
        what=f"{source} holds a {type(content).__name__}",
        why="arguments are names with values",
        fix='write {"learning_rate": 0.0001, ...}',
    )


def _import_yaml(file: str | os.PathLike[str]) -> Any:
    try:
        return import_module("yaml")
    except ImportError:
        raise ConfigError(
            what=f"{file} cannot be read",
            why="YAML needs PyYAML, which is not installed",
            fix="pip install pyyaml, or write the arguments as JSON",
        ) from None
