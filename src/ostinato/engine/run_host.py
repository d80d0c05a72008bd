"""The trainer as a run sees it: one Protocol for each part of the engine, with what that part reads, sets or calls.

Methods are override points; attributes that a part sets are those that users may read or replace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..checkpoint.run_directory import RunDirectory
from ..core.choices import ResumeMode
from ..core.protocols import (
    Batch,
    CallbackTensorHost,
    EventHost,
    Precision,
    ReportHooks,
    SaveHost,
    Strategy,
    TrainMetricsHost,
)
from ..core.state import TrainerState
from ..loss.objective import Objective
from ..loss.signatures import LossSignature
from .meters import LossMeter
from .run import Run


class LengthHost(Protocol):
    """A trainer, as the number of its steps is computed."""

    args: Any
    strategy: Strategy
    train_dataset: Any
    sampler: Any
    batch_sampler: Any

    def num_examples(self, dataloader: DataLoader[Any]) -> int: ...

    def get_total_train_batch_size(self, args: Any) -> int: ...


class AgreementHost(LengthHost, Protocol):
    """A trainer, as its processes are compared before they train together."""

    eval_dataset: Any

    def _is_overridden(self, method: str) -> bool: ...


class ModelHost(Protocol):
    """A trainer, as its model, optimizer and schedule are made ready for a run."""

    args: Any
    model: nn.Module
    model_wrapped: nn.Module
    processing_class: Any
    precision: Precision
    optimizer: Any
    lr_scheduler: Any
    neftune_noise_alpha: float | None
    _created_lr_scheduler: bool

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module: ...

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None: ...


class ObjectiveHost(Protocol):
    """A trainer, as the scale of its loss is set before the first step."""

    loss_objective: Objective
    loss_is_scaled_for_ga: bool | None

    def _get_loss_signature(self) -> LossSignature: ...

    def _name_loss_source(self) -> str: ...

    def _is_overridden(self, method: str) -> bool: ...


class MeterHost(Protocol):
    """A trainer, as the numbers of its run are counted."""

    args: Any
    state: TrainerState
    strategy: Strategy
    loss_objective: Objective
    _train_window: Any

    def is_world_process_zero(self) -> bool: ...

    def _build_flop_counter(self) -> Any: ...

    def _build_token_counter(self) -> Any: ...

    def _track_num_input_tokens(self, inputs: Batch) -> None: ...

    def _is_overridden(self, method: str) -> bool: ...


class SummaryHost(Protocol):
    """A trainer, as progress displays describe its run."""

    args: Any
    model: nn.Module
    strategy: Strategy
    callback_handler: Any
    _rehearsed: Any


class SaverHost(SaveHost, Protocol):
    """A trainer, as its checkpoints are written, rotated and uploaded."""

    optimizer: Any
    is_in_train: bool
    _run: Run | None
    _run_directory: RunDirectory

    def is_world_process_zero(self) -> bool: ...

    def store_flos(self) -> None: ...

    def _get_output_dir(self, trial: Any) -> str: ...

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None: ...

    def _is_overridden(self, method: str) -> bool: ...


class CheckpointHost(Protocol):
    """A trainer, as the checkpoint to resume from is looked for."""

    args: Any
    strategy: Strategy
    _run_directory: RunDirectory

    @property
    def _output_path(self) -> Path: ...

    def is_world_process_zero(self) -> bool: ...


class LoadHooks(Protocol):
    """The override points that load the parts of a checkpoint."""

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None: ...

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None: ...

    def _load_scaler(self, checkpoint: str | None) -> None: ...

    def _load_rng_state(self, checkpoint: str | None) -> None: ...

    def _load_callback_state(self) -> None: ...


class ResumeHost(LoadHooks, CallbackTensorHost, Protocol):
    """A trainer, as a run is resumed or forked with it."""

    args: Any
    state: TrainerState
    train_dataset: Any
    sampler: Any
    batch_sampler: Any
    optimizer: Any
    lr_scheduler: Any
    optimizer_cls_and_kwargs: Any
    _created_lr_scheduler: bool
    _resume_mode: ResumeMode
    _run: Run | None
    _run_directory: RunDirectory

    def _require_optimizer(self) -> torch.optim.Optimizer: ...

    def _is_overridden(self, method: str) -> bool: ...


class StopHost(ReportHooks, CheckpointHost, Protocol):
    """A trainer, as it is stopped by a signal."""


class FinishHost(EventHost, Protocol):
    """A trainer, as its run ends."""

    optimizer: Any
    strategy: Strategy
    is_in_train: bool
    _memory_tracker: Any

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None: ...

    def store_flos(self) -> None: ...

    def _load_best_model(self) -> None: ...


class OwnLoopHost(ReportHooks, Protocol):
    """A trainer, as it reports a step of a loop that a subclass has written."""

    args: Any

    @property
    def _loss_meter(self) -> LossMeter: ...

    def store_flos(self) -> None: ...


class RunHost(
    LengthHost, ModelHost, ObjectiveHost, MeterHost, TrainMetricsHost, SummaryHost, SaverHost, ResumeHost, Protocol
):
    """A trainer, as a run is opened: what all the stages need, and a loader."""

    _initial_num_input_tokens_seen: int
    _train_batch_size: int
    _restart: Any  # a `batch_size_search.Restart`, of a run that goes on with smaller batches

    def get_train_dataloader(self) -> DataLoader[Any]: ...

    def training_step(
        self, model: nn.Module, inputs: Batch, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor: ...

    @property
    def _labels_are(self) -> str: ...

    def _weigh_batches(self, batches: list[Batch], counts: list[float] | None) -> list[float]: ...
