"""The members of a trainer that setting up, saving, resuming and stopping a run use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils.data import DataLoader

from ..checkpoint.run_directory import RunHome
from ..core.choices import ResumeMode
from ..core.protocols import Batch, EvalHost, JournalHost, ReportHooks, SaveHost
from ..loss.objective import Objective
from ..loss.signatures import LossSignature
from .run import Run


class RunHost(ReportHooks, SaveHost, EvalHost, JournalHost, Protocol):
    """A trainer as its runs see it. Attributes are those that a run sets, methods are override points."""

    model_wrapped: nn.Module
    optimizer: Any
    optimizer_cls_and_kwargs: Any
    objective: Objective
    sampler: Any
    batch_sampler: Any
    neftune_noise_alpha: float | None
    loss_is_scaled_for_ga: bool | None
    _run: Run | None
    _run_home: RunHome
    _resume_mode: ResumeMode
    _rehearsed: Any
    _created_lr_scheduler: bool
    _initial_num_input_tokens_seen: int
    _train_batch_size: int

    @property
    def _home(self) -> Path: ...

    def get_train_dataloader(self) -> DataLoader[Any]: ...

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None: ...

    def get_total_train_batch_size(self, args: Any) -> int: ...

    def num_examples(self, dataloader: DataLoader[Any]) -> int: ...

    def is_world_process_zero(self) -> bool: ...

    def store_flos(self) -> None: ...

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module: ...

    def _divisors(self, batches: list[Batch], padding_batches: list[bool]) -> list[float]: ...

    def _flop_counter(self) -> Any: ...

    def _token_counter(self) -> Any: ...

    def _track_num_input_tokens(self, inputs: Batch) -> None: ...

    def _loss_signature(self) -> LossSignature: ...

    def _get_output_dir(self, trial: Any) -> str: ...

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None: ...

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None: ...

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None: ...

    def _load_scaler(self, checkpoint: str | None) -> None: ...

    def _load_rng_state(self, checkpoint: str | None) -> None: ...

    def _load_callback_state(self) -> None: ...

    def _existing_optimizer(self) -> torch.optim.Optimizer: ...
