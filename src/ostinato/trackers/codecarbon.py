"""Measure the emissions of training with CodeCarbon."""

from __future__ import annotations

import contextlib
from typing import Any

from ..core.notices import note_once
from .base import TrackerCallback
from .sink import Numbers, RunInfo, Sink


class CodeCarbonSink(Sink):
    """Measures from the start of a run to its end, and writes `emissions.csv` into `output_dir`."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.meter: Any = None

    def start(self, run: RunInfo) -> str | None:
        self.meter = self.module.EmissionsTracker(output_dir=run.output_dir)
        self.meter.start()
        return None

    def log(self, numbers: Numbers, step: int) -> None:
        """Do nothing: CodeCarbon measures, and takes no numbers."""

    def flush(self) -> None:
        with contextlib.suppress(AttributeError):  # how it says that there is nothing to write yet
            self.meter.flush()

    def finish(self) -> None:
        emissions = self.meter.stop()
        if emissions is not None:
            note_once(f"codecarbon: {emissions:.3g} kg of CO2 equivalents; details are in emissions.csv")


class CodeCarbonCallback(TrackerCallback):
    """Measures the emissions of training; needs the package codecarbon.

    >>> TrainingArguments("out", report_to="codecarbon")  # doctest: +SKIP
    """

    tracker = "codecarbon"

    def open(self) -> CodeCarbonSink:
        return CodeCarbonSink(self.package())

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Do nothing: an evaluation outside of training is not measured."""
