"""Logs as plain files in `output_dir`: `metrics.csv` and `metrics.jsonl`."""

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

    A resumed run cuts the file back to before the checkpoint's step and goes on from there.
    """

    file_name = ""
    patience = 1.0

    def __init__(self, file_name: str | None = None) -> None:
        self.file_name = file_name or self.file_name
        self._went_on = False

    def start(self, run: RunInfo) -> str | None:
        directory = Path(run.output_dir, run.trial or "")
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / self.file_name
        self._went_on = run.run_id is not None and self.path.exists()
        if self._went_on:
            self.go_on(math.inf if run.step is None else run.step)
        else:
            self.begin(run)
        return self.file_name

    def held(self, run: RunInfo) -> Held:
        return Held(complete_before=run.step or 0 if self._went_on else 0)

    def begin(self, run: RunInfo) -> None:
        """An empty file, in the place of another run's."""
        raise NotImplementedError

    def go_on(self, step: float) -> None:
        """Take out the lines of this step and later ones, and a last line that was not written to its end."""
        raise NotImplementedError

    def replace(self, lines: Iterable[str]) -> None:
        """New content, which is there as a whole or not at all."""
        partial = self.path.with_name(f".{self.path.name}.partial")
        with partial.open("w", encoding="utf-8", newline="") as file:
            file.writelines(lines)
        os.replace(partial, self.path)

    def log(self, numbers: Numbers, step: int) -> None:
        self.log_all([Logged(numbers, step, 0.0)])

    def append(self, text: str) -> None:
        # Opened each time: a run that ends with an error leaves nothing open. Without a buffer it costs little.
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

    def begin(self, run: RunInfo) -> None:
        self.columns = ["step"]
        self.replace([_row(self.columns)])
        content = {"hyper_parameters": run.hyper_parameters, "model_config": run.model_config}
        text = json.dumps(content, indent=2, default=str)
        self.path.with_name(HYPER_PARAMETERS_NAME).write_text(text + "\n", encoding="utf-8")

    def go_on(self, step: float) -> None:
        rows = list(_rows(self.path))
        self.columns = rows[0] if rows else ["step"]
        kept = [row for row in rows[1:] if len(row) == len(self.columns) and int(row[0]) < step]
        self.replace(_row(row) for row in [self.columns, *kept])

    def log_all(self, logs: Sequence[Logged]) -> None:
        new = list(dict.fromkeys(name for numbers, _, _ in logs for name in numbers if name not in self.columns))
        if new:
            blanks = [""] * len(new)
            rows = list(_rows(self.path))[1:]
            self.columns += new
            self.replace(_row(row) for row in [self.columns, *([*row, *blanks] for row in rows)])
        self.append("".join(self._line(numbers, step) for numbers, step, _ in logs))

    def _line(self, numbers: Numbers, step: int) -> str:
        values = [repr(numbers[name]) if name in numbers else "" for name in self.columns[1:]]
        return f"{','.join([str(step), *values])}\n"  # numbers need no quotes


def _rows(path: Path) -> Iterator[list[str]]:
    """The rows that were written to their end."""
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.reader(line for line in file if line.endswith("\n"))


def _row(cells: list[str]) -> str:
    quoted = [f'"{cell.replace(chr(34), chr(34) * 2)}"' if set(cell) & set(',"\r\n') else cell for cell in cells]
    return ",".join(quoted) + "\n"


class JsonlSink(FileSink):
    """One JSON object per line. The first one holds the hyper-parameters and the model's configuration."""

    file_name = JSONL_NAME

    def begin(self, run: RunInfo) -> None:
        first = {"hyper_parameters": run.hyper_parameters, "model_config": run.model_config, "run_name": run.name}
        self.replace([json.dumps(first, default=str) + "\n"])

    def go_on(self, step: float) -> None:
        kept = []
        with self.path.open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n") and json.loads(line).get("step", -1) < step:
                    kept.append(line)
        self.replace(kept)

    def log_all(self, logs: Sequence[Logged]) -> None:
        self.append("".join(f"{_as_json({'step': step, **numbers})}\n" for numbers, step, _ in logs))


_encode = json.JSONEncoder(allow_nan=False).encode


def _as_json(numbers: Numbers) -> str:
    try:
        return _encode(numbers)
    except ValueError:  # JSON has no word for what is not finite
        return _encode({name: _json_number(value) for name, value in numbers.items()})


def _json_number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class CsvCallback(TrackerCallback, QuietCallback):
    """Writes `metrics.csv` into `output_dir`: a row per log; and `hparams.json` beside it.

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
