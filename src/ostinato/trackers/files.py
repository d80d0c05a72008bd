"""Write logs to plain files in `output_dir`: `metrics.csv` and `metrics.jsonl`."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..callbacks.events import QuietCallback
from .base import TrackerCallback
from .sink import Held, Logged, Numbers, RunInfo, Sink

CSV_NAME = "metrics.csv"
JSONL_NAME = "metrics.jsonl"
HYPER_PARAMETERS_NAME = "hparams.json"


class FileSink(Sink):
    """A file with one line per log, at most a second behind.

    A resumed run truncates the file to before the checkpoint's step and continues from there.
    """

    file_name = ""
    patience = 1.0

    def __init__(self, file_name: str | None = None) -> None:
        self.file_name = file_name or self.file_name
        self._continues = False

    def start(self, run: RunInfo) -> str | None:
        directory = Path(run.output_dir, run.trial or "")
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / self.file_name
        self._continues = run.run_id is not None and self.path.exists()
        if self._continues:
            self.truncate_from(math.inf if run.step is None else run.step)
        else:
            self.create(run)
        return self.file_name

    def held(self, run: RunInfo) -> Held:
        return Held(complete_before=run.step or 0 if self._continues else 0)

    def create(self, run: RunInfo) -> None:
        """Write an empty file, in place of another run's."""
        raise NotImplementedError

    def truncate_from(self, step: float) -> None:
        """Remove the lines of this step and later ones, and an incomplete last line."""
        raise NotImplementedError

    def replace(self, lines: Iterable[str]) -> None:
        """Replace the content of the file atomically."""
        partial = self.path.with_name(f".{self.path.name}.partial")
        with partial.open("w", encoding="utf-8", newline="") as file:
            file.writelines(lines)
        os.replace(partial, self.path)

    def log(self, numbers: Numbers, step: int) -> None:
        self.log_all([Logged(numbers, step, 0.0)])

    def append(self, text: str) -> None:
        # Opened each time, so that a run that fails leaves nothing open. Unbuffered, it costs little.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        try:
            data = text.encode("utf-8")
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)


class CsvSink(FileSink):
    """One row per log, one column per name. A name that comes up later becomes a new column at the end."""

    file_name = CSV_NAME

    def create(self, run: RunInfo) -> None:
        self.columns = ["step"]
        self.replace([_format_row(self.columns)])
        content = {"hyper_parameters": run.hyper_parameters, "model_config": run.model_config}
        text = json.dumps(content, indent=2, default=str)
        self.path.with_name(HYPER_PARAMETERS_NAME).write_text(text + "\n", encoding="utf-8")

    def truncate_from(self, step: float) -> None:
        rows = list(_read_rows(self.path))
        self.columns = rows[0] if rows else ["step"]
        kept = [row for row in rows[1:] if len(row) == len(self.columns) and int(row[0]) < step]
        self.replace(_format_row(row) for row in [self.columns, *kept])

    def log_all(self, logs: Sequence[Logged]) -> None:
        new = list(dict.fromkeys(name for numbers, _, _ in logs for name in numbers if name not in self.columns))
        if new:
            blanks = [""] * len(new)
            rows = list(_read_rows(self.path))[1:]
            self.columns += new
            self.replace(_format_row(row) for row in [self.columns, *([*row, *blanks] for row in rows)])
        self.append("".join(self._format_line(numbers, step) for numbers, step, _ in logs))

    def _format_line(self, numbers: Numbers, step: int) -> str:
        values = [repr(numbers[name]) if name in numbers else "" for name in self.columns[1:]]
        return f"{','.join([str(step), *values])}\n"  # numbers need no quotes


def _read_rows(path: Path) -> Iterator[list[str]]:
    """Yield the complete rows of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.reader(line for line in file if line.endswith("\n"))


def _format_row(cells: list[str]) -> str:
    quoted = [f'"{cell.replace(chr(34), chr(34) * 2)}"' if set(cell) & set(',"\r\n') else cell for cell in cells]
    return ",".join(quoted) + "\n"


class JsonlSink(FileSink):
    """One JSON object per line. The first one holds the hyper-parameters and the model's configuration."""

    file_name = JSONL_NAME

    def create(self, run: RunInfo) -> None:
        first = {"hyper_parameters": run.hyper_parameters, "model_config": run.model_config, "run_name": run.name}
        self.replace([json.dumps(first, default=str) + "\n"])

    def truncate_from(self, step: float) -> None:
        kept = []
        with self.path.open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n") and json.loads(line).get("step", -1) < step:
                    kept.append(line)
        self.replace(kept)

    def log_all(self, logs: Sequence[Logged]) -> None:
        self.append("".join(f"{_to_json({'step': step, **numbers})}\n" for numbers, step, _ in logs))


_encode = json.JSONEncoder(allow_nan=False).encode


def _to_json(numbers: Numbers) -> str:
    try:
        return _encode(numbers)
    except ValueError:  # JSON has no numbers that are not finite
        return _encode({name: _to_json_number(value) for name, value in numbers.items()})


def _to_json_number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class CsvCallback(TrackerCallback, QuietCallback):
    """Writes `metrics.csv` into `output_dir`: a row per log; and `hparams.json` beside it.

    Args:
        file_name: The name of the file in `output_dir`.

    >>> TrainingArguments("out", report_to="csv")  # doctest: +SKIP
    """

    tracker = "csv"

    def __init__(self, file_name: str = CSV_NAME) -> None:
        super().__init__()
        self.file_name = file_name

    def open(self) -> CsvSink:
        return CsvSink(self.file_name)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "args": {"file_name": self.file_name}}


class JsonlCallback(TrackerCallback, QuietCallback):
    """Writes `metrics.jsonl` into `output_dir`: a JSON object per log, after one with the hyper-parameters.

    Args:
        file_name: The name of the file in `output_dir`.

    >>> TrainingArguments("out", report_to="jsonl")  # doctest: +SKIP
    """

    tracker = "jsonl"

    def __init__(self, file_name: str = JSONL_NAME) -> None:
        super().__init__()
        self.file_name = file_name

    def open(self) -> JsonlSink:
        return JsonlSink(self.file_name)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "args": {"file_name": self.file_name}}
