"""The trainer as diagnostics see it: each Protocol adds what the next larger question needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..core.protocols import Batch, Precision, Strategy
from ..core.state import TrainerControl, TrainerState


class BatchHost(Protocol):
    """Explains why a batch made the model, its loss or a metric fail."""

    args: Any
    model: nn.Module
    state: TrainerState
    label_names: list[str]
    can_return_loss: bool
    data_collator: Any
    compute_loss_func: Any
    label_smoother: Any
    preprocess_logits_for_metrics: Any
    _signature_columns: list[str] | None
    _train_batch_size: int
    _run_home: Any

    @property
    def _home(self) -> Path: ...

    def _is_overridden(self, method: str) -> bool: ...


class ExplainHost(BatchHost, Protocol):
    """Sends one batch through the model and describes it."""

    strategy: Strategy
    precision: Precision
    objective: Any
    processing_class: Any
    train_dataset: Any
    eval_dataset: Any
    sampler: Any
    batch_sampler: Any
    _output_names: Any
    _loss_shifts_labels: bool | None

    @property
    def _model_name(self) -> str: ...

    def get_train_dataloader(self) -> Any: ...

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any: ...

    def prediction_step(
        self, model: nn.Module, inputs: Batch, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Tensor | None, Any, Any]: ...

    def get_num_trainable_parameters(self) -> int: ...

    def _prepare_inputs(self, inputs: Batch) -> Batch: ...

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module: ...

    def _shifts_labels(self, batch: Batch) -> bool: ...

    def _loss_source(self) -> str: ...

    def _set_signature_columns_if_needed(self) -> None: ...


class PlanHost(ExplainHost, Protocol):
    """Tells what a run will do."""

    optimizer: Any
    lr_scheduler: Any
    optimizer_cls_and_kwargs: Any
    callback_handler: Any
    _run: Any
    _rehearsed: Any
    _created_lr_scheduler: bool

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: Any, model: nn.Module | None = None) -> tuple[Any, dict[str, Any]]: ...

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]: ...

    def _get_output_dir(self, trial: Any) -> str: ...


class DryRunHost(PlanHost, Protocol):
    """Tries a training batch, an evaluation, a save and a load."""

    control: TrainerControl
    is_in_train: bool
    model_wrapped: nn.Module

    def training_step(
        self, model: nn.Module, inputs: Batch, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor: ...

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any: ...

    def _get_num_items_in_batch(self, batch_samples: list[Batch], device: torch.device) -> Tensor | int | None: ...

    def _may_add_metrics(self) -> bool: ...

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None: ...

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None: ...

    def _load_scaler(self, checkpoint: str | None) -> None: ...

    def _load_rng_state(self, checkpoint: str | None) -> None: ...


class VerifyHost(DryRunHost, Protocol):
    """Trains twice, to compare a resumed run with one that was not stopped."""

    def train(self, resume_from_checkpoint: str | bool | None = None) -> Any: ...


def as_run_host(host: BatchHost) -> Any:
    """Return `host` as the functions of engine/ and evaluation/ take it.

    They name members that diagnostics never reads; repeating these here would hide which ones it does.
    """
    return host
