"""Errors about unreadable files that name the line at fault."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import IO

from ostinato import DataError


def open_text(path: Path) -> IO[str]:
    """Open a text file, compressed or not."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def find_file_error(path: Path, reader: str) -> DataError | None:
    """Return an error that names the line or row at fault, if it can be found."""
    try:
        if reader == "csv":
            return _find_long_row(path)
        if reader == "json":
            return _find_bad_line(path)
        with open_text(path) as file:
            for _ in file:
                pass
    except UnicodeDecodeError:
        return find_encoding_error(path)
    except (OSError, EOFError, csv.Error):
        pass  # the error of the reader is used instead
    return None


def find_encoding_error(path: Path) -> DataError | None:
    """Return the error about the first line that is not UTF-8."""
    if not path.is_file():
        return None
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return DataError(
                    what=f"{path}, line {number}: not valid UTF-8",
                    why=f"the bytes from {error.start} on are {line[error.start : error.start + 8]!r}",
                    fix=f"convert the file, if it is Latin-1: iconv -f latin1 -t utf8 {path}",
                )
    return None


def _find_long_row(path: Path) -> DataError | None:
    is_tabbed = ".tsv" in path.suffixes
    with open_text(path) as file:
        rows = (row for row in csv.reader(file, delimiter="\t" if is_tabbed else ",") if row)
        columns = len(next(rows, []))
        for number, row in enumerate(rows, start=1):
            if len(row) > columns:
                return DataError(
                    what=f"{path}, row {number}: {len(row)} values for {columns} columns",
                    why=f"a value that contains a {'tab' if is_tabbed else 'comma'} must be quoted",
                    fix="correct the row",
                )
    return None


def _find_bad_line(path: Path) -> DataError | None:
    with open_text(path) as file:
        if ".jsonl" not in path.suffixes:
            text = file.read()
            try:
                json.loads(text)
                return None
            except ValueError as problem:
                if not _is_row(text.partition("\n")[0]):
                    return DataError(f"{path} is not JSON", f"{problem}", "correct that position")
            file.seek(0)  # rows line by line after all
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line) if line.strip() else {}
            except ValueError as problem:
                return DataError(f"{path}, line {number}: not valid JSON", f"{problem}", "correct the line")
            if not isinstance(row, dict):
                return DataError(
                    f"{path}, line {number}: a {type(row).__name__}, not an object",
                    "a row is an object of names and values",
                    'write {"text": "..."}',
                )
    return None


def _is_row(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
