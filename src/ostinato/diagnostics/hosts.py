"""The trainer as diagnostics see it: each Protocol adds what the next larger question needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..core.protocols import Batch, EvalHooks, EvalHost, LossHost, MetricRequestHost, MetricsHost, Precision
from ..core.state import TrainerState
from ..engine.run_host import LengthHost, RunHost


class BatchHost(MetricRequestHost, Protocol):
    """Explains why a batch made the model, its loss or a metric fail."""

    args: Any
    model: nn.Module
    state: TrainerState
    label_names: list[str]
    data_collator: Any
    compute_loss_func: Any
    label_smoother: Any
    preprocess_logits_for_metrics: Any
    _signature_columns: list[str] | None
    _train_batch_size: int
    _run_directory: Any

    @property
    def _output_path(self) -> Path: ...

    def _is_overridden(self, method: str) -> bool: ...

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any: ...


class ExplainHost(BatchHost, MetricsHost, LossHost, Protocol):
    """Sends one batch through the model and describes it."""

    precision: Precision
    train_dataset: Any
    sampler: Any
    batch_sampler: Any

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

    def _set_signature_columns_if_needed(self) -> None: ...


class PlanHost(ExplainHost, LengthHost, Protocol):
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


class DryRunHost(ExplainHost, RunHost, EvalHost, EvalHooks, Protocol):
    """Tries a training batch, an evaluation, a save and a load."""

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


class VerifyHost(DryRunHost, Protocol):
    """Trains twice, to compare a resumed run with one that was not stopped."""

    def train(self, resume_from_checkpoint: str | bool | None = None) -> Any: ...
