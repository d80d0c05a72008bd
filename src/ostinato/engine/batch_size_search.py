"""`auto_find_batch_size`: go on with smaller micro-batches after memory ran out, from the last step that was taken."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from ..arguments.settings import RunSettings
from ..checkpoint.callback_tensors import collect_tensor_states, restore_tensor_states
from ..checkpoint.layouts import open_checkpoint
from ..core import accelerator
from ..core.errors import add_note
from ..core.notices import note
from ..core.out_of_memory import SMALLER, is_out_of_memory
from ..core.protocols import TrainHooks
from ..core.random import RandomState
from ..core.timing import TimeLedger
from ..data.epoch_position import find_batching
from ..optim import schedulers
from .loader_plan import has_own_batches
from .plan import Plan
from .resume_plan import Resumed
from .run import Origin, Run
from .run_host import RunHost

T = TypeVar("T")


@dataclass
class RestartPoint:
    """What a failed step changes, as it was after the step before: position in the data, random streams, buffers."""

    progress: dict[str, Any]
    streams: RandomState
    buffers: list[tuple[Tensor, Tensor]]  # and their values; a forward may change them

    @classmethod
    def of(cls, trainer: TrainHooks, run: Run) -> RestartPoint:
        """Record where a run stands after a step."""
        with run.updates.use_next_streams():
            streams = RandomState.capture()
        return cls(copy.deepcopy(run.export_progress(trainer.strategy)), streams, _copy_buffers(trainer.model))

    def restore_streams(self) -> None:
        self.streams.restore()


@dataclass
class Restart:
    """A run that continues in the same process: where it stood, and what it keeps."""

    point: RestartPoint
    started: float
    origin: Origin
    ledger: TimeLedger
    checkpoint: Path | None  # the last that was saved
    schedule: dict[str, Any] | None  # the state of a schedule that the trainer created
    rates: list[Any]  # of the parameter groups
    callbacks: dict[str, list[Any]]  # the tensors that callbacks keep
    reason: str

    def plan_rest(self, trainer: RunHost, plan: Plan, loader: Any) -> Resumed:
        """Return the rest of the run; `plan` is that of a new run with the present batches."""
        settings = RunSettings.of(trainer.args)
        return Resumed.build(
            "",
            trainer.state,
            self.point.progress,
            plan,
            find_batching(loader),
            epochs=settings.epochs,
            max_steps=settings.max_steps,
            processes=1,
        )

    def restore(self, trainer: RunHost, resumed: Resumed, run: Run) -> None:
        """Let `run` continue where the run before it stood."""
        note("; ".join([self.reason, *resumed.changes]))
        if self.schedule is not None:
            trainer.lr_scheduler.load_state_dict(self.schedule)
        for group, rate in zip(trainer.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate
        if self.schedule is not None and isinstance(trainer.lr_scheduler, LambdaLR):  # it may be longer now
            schedulers.follow_schedule(trainer.lr_scheduler, trainer.optimizer)
        _restore_buffers(self.point.buffers)
        restore_tensor_states(trainer, self.callbacks)
        run.restore(self.point.progress)
        run.restart_point = self.point
        run.updates.restore_streams = self.point.restore_streams
        run.saves.checkpoint = self.checkpoint
        run.started, run.origin = self.started, self.origin
        run.ledger = run.updates.ledger = self.ledger


def train_with_smaller_batches(
    trainer: RunHost,
    train: Callable[..., T],
    checkpoint: str | None,
) -> T:
    """Call `train` with the number of rows of a micro-batch, and with a smaller one whenever memory runs out.

    `trainer._restart` is then the run to continue; None if it has taken no step and begins again.

    Args:
        trainer: the trainer.
        train: the inner training loop.
        checkpoint: the checkpoint that the run resumes from; its batches are the first that are tried.

    Returns:
        What `train` returned.
    """
    if checkpoint is not None:
        _adopt_batch_size(trainer, checkpoint)
    streams, buffers = RandomState.capture(), _copy_buffers(trainer.model)
    while True:
        try:
            return train(batch_size=trainer._train_batch_size)
        except Exception as error:
            run = trainer._run
            if run is None or not (run.step.is_computing or run.step.is_ending) or not is_out_of_memory(error):
                raise
            smaller = int(trainer._train_batch_size * SMALLER)
            if smaller == 0 or has_own_batches(trainer, run.updates.loader):
                why = "one row does not fit" if smaller == 0 else "they are not made by the trainer"
                add_note(error, f"ostinato: auto_find_batch_size cannot make batches smaller: {why}")
                raise
            reason = (
                f"out of memory at step {trainer.state.global_step + run.step.is_computing} with micro-batches of "
                f"{trainer._train_batch_size} rows: going on with {smaller} (auto_find_batch_size)"
            )
        # Here the frames of the failed step are gone, and the memory of their tensors is free.
        gc.collect()
        accelerator.empty_cache(trainer.strategy.device)
        trainer._train_batch_size = smaller
        trainer._restart = _find_restart(trainer, run, reason)
        if trainer._restart is None:
            note(reason)
            streams.restore()
            _restore_buffers(buffers)


def _adopt_batch_size(trainer: RunHost, checkpoint: str) -> None:
    """Begin with the batches that a run had at its checkpoint, if these are smaller."""
    found, given = open_checkpoint(checkpoint).read_state().train_batch_size, trainer._train_batch_size
    if found and found < given:
        note(f"micro-batches have {found} rows, as in {checkpoint}, and not {given} (auto_find_batch_size)")
        trainer._train_batch_size = found


def _find_restart(trainer: RunHost, run: Run, reason: str) -> Restart | None:
    """Return what a new run needs to continue this one; None if it has taken no step."""
    if run.restart_point is None:
        return None
    return Restart(
        run.restart_point,
        run.started,
        run.origin,
        run.ledger,
        run.saves.checkpoint,
        schedule=trainer.lr_scheduler.state_dict() if trainer._created_lr_scheduler else None,
        rates=[copy.deepcopy(group["lr"]) for group in trainer.optimizer.param_groups],
        callbacks=copy.deepcopy(collect_tensor_states(trainer)),
        reason=reason,
    )


def _copy_buffers(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Return the buffers that are part of the model's state, and copies of them."""
    return [
        (buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name not in module._non_persistent_buffers_set
    ]


def _restore_buffers(buffers: list[tuple[Tensor, Tensor]]) -> None:
    with torch.no_grad():
        for buffer, value in buffers:
            buffer.copy_(value)
