"""The facts about a run that progress displays show: a description, the first loss, the time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ..arguments.settings import RunSettings
from ..checkpoint.background import ShowSaving
from ..data.columns import unwrap_model
from ..data.sizes import has_length
from ..progress.callback import ProgressCallback
from ..progress.messages import ObservedRun, describe_run
from ..progress.notebook import NotebookProgressCallback
from .run import Run
from .run_host import SummaryHost


def attach_progress(trainer: SummaryHost, run: Run) -> None:
    """Give the run's facts to the callbacks that show progress."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, (ProgressCallback, NotebookProgressCallback)):
            callback.watch(describe(trainer, run))


def find_skip_display(callbacks: Sequence[Any]) -> Callable[[int | None, int, str], bool] | None:
    """Return the function that shows how far a stream is read again, up to the run's position, if there is one."""
    bar = _find_bar(callbacks)
    return None if bar is None else bar.show_skipping


def find_save_display(callbacks: Sequence[Any]) -> ShowSaving | None:
    """Return the function that shows that training waits for a save; None if there is none."""
    bar = _find_bar(callbacks)
    return None if bar is None else bar.show_saving


def _find_bar(callbacks: Sequence[Any]) -> ProgressCallback | None:
    return next((callback for callback in callbacks if isinstance(callback, ProgressCallback)), None)


def describe(trainer: SummaryHost, run: Run) -> ObservedRun:
    """Return the facts that progress displays may read."""
    settings, model, device = RunSettings.of(trainer.args), unwrap_model(trainer.model), trainer.strategy.device
    parameters = list(model.parameters())
    logged_at, before = run.meters.loss.last_step, run.meters.loss.pending.clone()  # of the run that is resumed

    def first_loss() -> float | None:
        """Return the first loss; None with several processes, as each knows the loss of its own rows only."""
        is_known = run.meters.loss.last_step > logged_at or run.updates.processes > 1
        return None if is_known else (run.meters.loss.pending - before).item()

    def expected() -> float | None:
        rehearsed = trainer._rehearsed
        each = None if rehearsed is None else rehearsed.train_seconds
        return None if each is None else each * settings.accumulation * (run.plan.max_steps - run.origin.step)

    return ObservedRun(
        header=describe_run(
            type(model).__name__,
            (sum(one.numel() for one in parameters), sum(one.numel() for one in parameters if one.requires_grad)),
            str(device) if run.updates.processes == 1 else f"{run.updates.processes} x {device.type}",
            name_precision(settings, device, parameters),
            count_rows(run.updates.loader),
            run.plan.max_steps,
            settings.batch_size * settings.accumulation * run.updates.processes,
        ),
        results=str(settings.output_dir),
        seconds=run.ledger.seconds,
        first_loss=first_loss,
        workers=settings.workers,
        cores=os.cpu_count() or 1,
        expected=expected,
    )


def name_precision(settings: RunSettings, device: torch.device, parameters: list[nn.Parameter]) -> str:
    """Return the name of the number format used for computing."""
    if settings.mixed_precision == "bf16":
        return "bf16"
    if settings.mixed_precision == "fp16" and device.type != "cpu":  # on a CPU it has no effect
        return "fp16"
    return str(parameters[0].dtype).removeprefix("torch.") if parameters else "float32"


def count_rows(loader: Any) -> int | None:
    """Return the number of rows of a loader's data set; None if it is unknown."""
    dataset: Any = getattr(loader, "dataset", None)
    return len(dataset) if has_length(dataset) else None
