"""The narrow interfaces between the layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .state import TrainerControl, TrainerState

Batch = dict[str, Any]


class Exchange(Protocol):
    """Numbers that travel between the processes."""

    def get(self) -> list[list[float]]:
        """Wait for the numbers of every process, and return them in the order of the ranks."""
        ...


class Strategy(Protocol):
    """Where the parameters live and how processes exchange data. One instance per process."""

    device: torch.device
    is_sharded: bool  # each process holds a part of the weights: all of them have to take part in a save
    has_unused: bool  # a weight had no part in the loss, which was not expected

    @property
    def rank(self) -> int:
        """The number of this process among those that hold different data."""
        ...

    @property
    def size(self) -> int:
        """The number of processes that hold different data."""
        ...

    @property
    def processes(self) -> int:
        """The number of all processes: more than `size` where several compute the same rows (tensor parallelism)."""
        ...

    def place(self, model: nn.Module, *, training: bool = True) -> nn.Module:
        """Replicate or shard `model`, which is on its device already; return what the loop should call."""
        ...

    def accumulate(self, model: nn.Module, *, sync: bool) -> AbstractContextManager[Any]:
        """Scope one micro-batch; exchange gradients with other processes only if `sync`."""
        ...

    def clip(self, gradients: list[Tensor], max_norm: float) -> Tensor:
        """Scale the gradients down to `max_norm`; return the norm they had."""
        ...

    @property
    def process_index(self) -> int:
        """The number of this process among all."""
        ...

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum of `value` over the processes that hold different data."""
        ...

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of `value` over the processes that hold different data."""
        ...

    def gather(self, tree: Any, *, pad: float | None = None) -> Any:
        """Return the rows of every process, in the order of the ranks; pad ragged second dimensions with `pad`."""
        ...

    def exchange(self, numbers: Sequence[float]) -> Exchange:
        """Send numbers to all processes, each of which has to send as many. Nobody waits before the result is read."""
        ...

    def finish_backward(self, model: nn.Module) -> nn.Module:
        """Complete the gradients after the last backward of a step; return what the loop should call from now on."""
        ...

    def search_unused(self, model: nn.Module) -> nn.Module:
        """Expect weights without a part in the loss from now on; return what the loop should call."""
        ...

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process. All processes have to call it."""
        ...

    def gather_objects(self, value: Any) -> list[Any]:
        """Return the value of every process that holds different data, in the order of the ranks."""
        ...

    def gather_from_all(self, value: Any) -> list[Any]:
        """Return the value of every process, of those too that compute the same rows."""
        ...

    def open_background_gather(self) -> Callable[[Any], list[Any]]:
        """Return a `gather_from_all` for a thread beside training. All processes have to call this."""
        ...

    def broadcast_object(self, value: Any) -> Any:
        """Return the value of the first process."""
        ...

    def model_state(self, model: nn.Module) -> dict[str, Any] | None:
        """Return the whole weights, in the first process; None where the model itself holds all of them."""
        ...

    def load_model_state(self, model: nn.Module, state: Mapping[str, Any]) -> Any:
        """Load stored weights into `model`; return the result of its `load_state_dict`."""
        ...

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Return the state dict of `optimizer` as a checkpoint stores it."""
        ...

    def load_optimizer_state(self, optimizer: Any, state: dict[str, Any]) -> None:
        """Load a stored state dict into `optimizer`."""
        ...

    def choose_optimizer_options(self, kind: type, options: dict[str, Any], model: nn.Module) -> dict[str, Any]:
        """Return the options to create an optimizer with, for the parameters as they are placed; or raise."""
        ...

    def barrier(self) -> None:
        """Wait for every process."""
        ...

    def watch(self, find_step: Callable[[], int], timeout_seconds: float) -> AbstractContextManager[Any]:
        """Tell which process does not come, inside the block, before a wait for it fails after so many seconds.

        An error that ends the block is written down for the launcher of the processes.
        """
        ...


class Precision(Protocol):
    """The number format of the forward, and the scaling of gradients that it needs."""

    def forward(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Compute every forward of `model` in this format, inside the block."""
        ...

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute in the format of the forward, inside the block, for code outside of the forward."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of `loss`."""
        ...

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Scale the gradients back to their true size before they are measured and clipped."""
        ...

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Take the optimizer step; return False if the schedule must not advance, because the step was skipped."""
        ...

    def skip(self, optimizer: torch.optim.Optimizer) -> bool:
        """Skip the optimizer step, since its numbers are not finite; return whether the schedule still advances."""
        ...

    def has_overflowed(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether gradients are not finite because of their scale, which a skipped step will correct."""
        ...

    def step_unless(self, optimizer: torch.optim.Optimizer, bad: Tensor) -> Any:
        """Take the step of a fused optimizer, which skips it by itself if `bad` is not zero. Nothing waits.

        Return what will tell whether gradients have overflowed.
        """
        ...


class EventHost(Protocol):
    """A trainer whose events are delivered to its callbacks."""

    args: Any
    state: TrainerState
    control: TrainerControl
    callback_handler: Any


class TrainHooks(EventHost, Protocol):
    """The members of a trainer that the training loop uses. Every method here is a documented override point."""

    model: nn.Module
    model_wrapped: nn.Module
    optimizer: Any  # read when it is used: a callback may have replaced it
    lr_scheduler: Any
    strategy: Strategy
    precision: Precision
    current_gradient_accumulation_steps: int

    def get_batch_samples(
        self, epoch_iterator: Iterator[Batch], num_batches: int, device: torch.device
    ) -> tuple[list[Batch], Tensor | int | None]: ...

    def training_step(
        self, model: nn.Module, inputs: Batch, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor: ...

    def _clip_grad_norm(self, model: nn.Module) -> Tensor | None: ...

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


class ReportHooks(EventHost, Protocol):
    """The members of a trainer that are used after a step."""

    model_wrapped: nn.Module
    strategy: Strategy

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None: ...

    def _evaluate(
        self, trial: Any, ignore_keys_for_eval: list[str] | None, skip_scheduler: bool = False
    ) -> dict[str, float]: ...

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool: ...

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None: ...

    def _get_learning_rate(self) -> float: ...


class EvalHooks(EventHost, Protocol):
    """The members of a trainer that the evaluation loop uses."""

    strategy: Strategy
    compute_metrics: Any
    preprocess_logits_for_metrics: Any

    def prediction_step(
        self, model: nn.Module, inputs: Batch, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Any, Any, Any]: ...

    def _prepare_input(self, data: Any) -> Any: ...


class MetricRequestHost(Protocol):
    """A trainer, as the metrics that its user requested are read from it."""

    eval_dataset: Any
    compute_metrics: Any
    _metrics_argument: Any

    def _is_replaced(self, method: str) -> bool: ...


class MetricsHost(MetricRequestHost, Protocol):
    """A trainer, as metrics are built for it: what they may have to know, and what "auto" chooses by."""

    args: Any
    model: nn.Module
    processing_class: Any
    strategy: Strategy
    label_names: list[str]
    _loss_shifts_labels: bool | None
    _output_names: Any

    def _can_add_metrics(self) -> bool: ...


class LossHost(Protocol):
    """A trainer, as the loss of a batch is computed with it outside of the training step."""

    strategy: Strategy
    loss_objective: Any
    label_names: list[str]

    @property
    def _labels_are(self) -> str: ...

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any: ...

    def _get_loss_signature(self) -> Any: ...

    def _name_loss_source(self) -> str: ...

    def _has_shifted_labels(self, batch: Batch) -> bool: ...

    def _is_overridden(self, method: str) -> bool: ...


class TrainMetricsHost(MetricsHost, LossHost, Protocol):
    """A trainer, as the metrics of its training batches are computed."""

    train_metrics: Any
    _train_window: Any


class CallbackTensorHost(Protocol):
    """A trainer whose callbacks may keep their own tensors beside the model."""

    model: nn.Module
    strategy: Strategy
    callback_handler: Any


class EvalHost(MetricsHost, LossHost, CallbackTensorHost, Protocol):
    """A trainer, as an evaluation is planned and its model prepared."""

    optimizer: Any
    precision: Precision
    is_in_train: bool
    model_preparation_time: float

    @property
    def _has_prepared_model(self) -> bool: ...

    @property
    def _prediction_padding(self) -> int: ...


class SaveHost(CallbackTensorHost, Protocol):
    """A trainer, as the parts of a checkpoint are read from it."""

    args: Any
    state: TrainerState
    processing_class: Any
    data_collator: Any
    optimizer: Any
    lr_scheduler: Any
    precision: Precision
    _run: Any

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None: ...

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None: ...

    def _save_scaler(self, output_dir: str) -> None: ...

    def _save_rng_state(self, output_dir: str) -> None: ...

    def _require_optimizer(self) -> torch.optim.Optimizer: ...

    def _export_callback_states(self) -> dict[str, Any]: ...


class LoaderHost(Protocol):
    """A trainer, as a loader is built for it."""

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
    """A trainer, as its journal describes it."""

    args: Any
    model: nn.Module
    state: TrainerState
    strategy: Strategy
    callback_handler: Any
    train_dataset: Any
    eval_dataset: Any
    _run: Any
    _run_directory: Any

    @property
    def _model_name(self) -> str: ...

    def model_columns(self, dataset: Any = None) -> Any: ...

    def get_total_train_batch_size(self, args: Any) -> int: ...

    def is_world_process_zero(self) -> bool: ...

    def _get_output_dir(self, trial: Any) -> str: ...
