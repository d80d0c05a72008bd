"""The narrow interfaces through which the layers see one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .state import TrainerControl, TrainerState

Batch = dict[str, Any]


class Strategy(Protocol):
    """Where the parameters live and how processes agree. One instance per process."""

    device: torch.device

    @property
    def rank(self) -> int:
        """Return the number of this process among those that hold different data."""
        ...

    @property
    def size(self) -> int:
        """Return how many processes hold different data."""
        ...

    def place(self, model: nn.Module) -> nn.Module:
        """Replicate or shard `model`, which is where it has to be; return what the loop should call."""
        ...

    def accumulate(self, model: nn.Module, *, sync: bool) -> AbstractContextManager[Any]:
        """Scope one micro-batch; exchange gradients with other processes only if `sync`."""
        ...

    def clip(self, gradients: list[Tensor], max_norm: float) -> Tensor:
        """Scale the gradients down to `max_norm`; return the norm they had."""
        ...

    def sum(self, value: Tensor) -> Tensor:
        """The sum of `value` over the processes that hold different data."""
        ...

    def mean(self, value: Tensor) -> Tensor:
        """The mean of `value` over the processes that hold different data."""
        ...

    def gather(self, tree: Any, *, pad: float | None = None) -> Any:
        """The rows of every process, in the order of the ranks; ragged second dimensions are padded with `pad`."""
        ...

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process. All processes have to ask."""
        ...

    def gather_objects(self, value: Any) -> list[Any]:
        """Return the value of every process, in the order of the ranks."""
        ...

    def broadcast_object(self, value: Any) -> Any:
        """Return the value of the first process."""
        ...

    def model_state(self, model: nn.Module) -> dict[str, Any] | None:
        """Return the weights that a checkpoint stores; None where the model itself holds all of them."""
        ...

    def load_model_state(self, model: nn.Module, state: Mapping[str, Any]) -> None:
        """Put stored weights, which were compared with the model's, into `model`."""
        ...

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Return the state dict of `optimizer` as a checkpoint stores it."""
        ...

    def load_optimizer_state(self, optimizer: Any, state: dict[str, Any]) -> None:
        """Put a stored state dict into `optimizer`."""
        ...

    def barrier(self) -> None:
        """Wait for every process."""
        ...


class Precision(Protocol):
    """In which number format to compute, and how gradients survive it."""

    def forward(self, model: nn.Module) -> AbstractContextManager[Any]:
        """While entered, every forward of `model` computes in this format."""
        ...

    def autocast(self) -> AbstractContextManager[Any]:
        """The format of the forward, for code that computes outside of it."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of `loss`."""
        ...

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Bring the gradients to their true size before they are measured and clipped."""
        ...

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Take the optimizer step; False if the schedule must not follow, because the step was skipped."""
        ...

    def skip(self, optimizer: torch.optim.Optimizer) -> bool:
        """Give up the optimizer step, since its numbers are not finite; whether the schedule follows nevertheless."""
        ...

    def overflowed(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether gradients are not finite because of how they are scaled, which a skipped step will correct."""
        ...


class TrainHooks(Protocol):
    """What the training loop asks of a trainer. Every method here is a documented override point."""

    args: Any
    model: nn.Module
    model_wrapped: nn.Module
    optimizer: Any  # read at the moment of use: a callback may have swapped it
    lr_scheduler: Any
    state: TrainerState
    control: TrainerControl
    callback_handler: Any
    strategy: Strategy
    precision: Precision
    current_gradient_accumulation_steps: int

    def get_batch_samples(
        self, epoch_iterator: Iterator[Batch], num_batches: int, device: torch.device
    ) -> tuple[list[Batch], Tensor | int | None]: ...

    def training_step(
        self, model: nn.Module, inputs: Batch, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor: ...

    def _clip_grad_norm(self, model: nn.Module) -> Tensor: ...

    def _get_learning_rate(self) -> float: ...

    def _maybe_log_save_evaluate(
        self,
        tr_loss: Tensor,
        grad_norm: Tensor | float | None,
        model: nn.Module,
        trial: Any,
        epoch: float,
        ignore_keys_for_eval: list[str] | None,
        start_time: float,
        learning_rate: float | None = None,
    ) -> None: ...


class ReportHooks(Protocol):
    """What happens after a step, asked of a trainer."""

    args: Any
    model_wrapped: nn.Module
    state: TrainerState
    control: TrainerControl
    callback_handler: Any
    strategy: Strategy

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None: ...

    def _evaluate(
        self, trial: Any, ignore_keys_for_eval: list[str] | None, skip_scheduler: bool = False
    ) -> dict[str, float]: ...

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool: ...

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None: ...

    def _get_learning_rate(self) -> float: ...


class EvalHooks(Protocol):
    """What the evaluation loop asks of a trainer."""

    args: Any
    state: TrainerState
    control: TrainerControl
    callback_handler: Any
    strategy: Strategy
    compute_metrics: Any
    preprocess_logits_for_metrics: Any
    label_names: list[str]

    def prediction_step(
        self, model: nn.Module, inputs: Batch, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Any, Any, Any]: ...

    def _prepare_input(self, data: Any) -> Any: ...


class EvalHost(EvalHooks, Protocol):
    """What is asked of a trainer to set an evaluation up: its model, data, metrics and loss."""

    model: nn.Module
    eval_dataset: Any
    processing_class: Any
    precision: Precision
    objective: Any
    is_in_train: bool
    train_metrics: Any
    model_preparation_time: float
    _metrics_asked: Any
    _loss_shifts_labels: bool | None
    _output_names: Any
    _run: Any
    _train_window: Any

    @property
    def _labels_are(self) -> str: ...

    @property
    def _prediction_padding(self) -> int: ...

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any: ...

    def _loss_signature(self) -> Any: ...

    def _loss_source(self) -> str: ...

    def _shifts_labels(self, batch: Batch) -> bool: ...

    def _may_add_metrics(self) -> bool: ...

    def _is_overridden(self, method: str) -> bool: ...


class CallbackTensorHost(Protocol):
    """A trainer whose callbacks may keep tensors of their own beside the model."""

    model: nn.Module
    strategy: Strategy
    callback_handler: Any


class SaveHost(CallbackTensorHost, Protocol):
    """A trainer as the parts of a checkpoint are read from it."""

    args: Any
    state: TrainerState
    processing_class: Any
    data_collator: Any
    lr_scheduler: Any
    precision: Precision
    _run: Any

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None: ...

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None: ...

    def _save_scaler(self, output_dir: str) -> None: ...

    def _save_rng_state(self, output_dir: str) -> None: ...

    def _existing_optimizer(self) -> torch.optim.Optimizer: ...

    def _callback_states(self) -> dict[str, Any]: ...


class LoaderHost(Protocol):
    """A trainer as a loader is built for it."""

    args: Any
    model: nn.Module
    processing_class: Any
    data_collator: Any
    batch_sampler: Any
    _train_batch_size: int

    def _remove_unused_columns(self, dataset: Any, description: str | None = None) -> Any: ...

    def _get_collator_with_removed_columns(
        self, data_collator: Callable[..., Any], description: str | None = None
    ) -> Callable[..., Any]: ...

    def _is_overridden(self, method: str) -> bool: ...


class JournalHost(Protocol):
    """A trainer as its journal describes it."""

    args: Any
    model: nn.Module
    state: TrainerState
    strategy: Strategy
    callback_handler: Any
    train_dataset: Any
    eval_dataset: Any
    _run: Any
    _run_home: Any

    @property
    def _model_name(self) -> str: ...

    def model_columns(self, dataset: Any = None) -> Any: ...

    def get_total_train_batch_size(self, args: Any) -> int: ...

    def is_world_process_zero(self) -> bool: ...

    def _get_output_dir(self, trial: Any) -> str: ...
