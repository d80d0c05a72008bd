"""Arguments for the length of a run, the learning rate, the optimizer and the gradient."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.choices import OptimizerNames, SchedulerType
from ..argument import Range, argument
from ..resume_rules import (
    change_across_processes,
    change_batch_size,
    change_epochs,
    change_numbers,
    change_schedule,
    change_schedule_options,
    change_steps,
    change_warmup,
    keep_learning_rate,
    keep_optimizer,
)


@dataclass
class RunArguments:
    """Output directory, batch size and length of a run."""

    output_dir: str | None = argument(
        None, help="Directory for all files of a run. Not given: trainer_output.", on_resume=None
    )
    per_device_train_batch_size: int = argument(
        8,
        help="Rows per training micro-batch and process.",
        number=Range(minimum=1, whole=True),
        on_resume=change_batch_size,
    )
    num_train_epochs: float = argument(
        3.0,
        help="Number of passes over the training data; may be a fraction (2.5). Ignored when max_steps is set.",
        number=Range(finite=True),
        on_resume=change_epochs,
    )
    max_steps: int = argument(
        -1,
        help="Number of optimizer steps; the data is repeated if it is too short. -1: num_train_epochs decides.",
        number=Range(whole=True),
        on_resume=change_steps,
    )


@dataclass
class ScheduleArguments:
    """Learning rate and its schedule."""

    learning_rate: float = argument(
        5e-5,
        help="Learning rate after warmup, which is the highest.",
        number=Range(minimum=0),
        on_resume=keep_learning_rate,
    )
    lr_scheduler_type: SchedulerType | str = argument(
        "linear", help="Shape of the learning rate after warmup.", choices=SchedulerType, on_resume=change_schedule
    )
    lr_scheduler_kwargs: dict | str | None = argument(
        None,
        help="Further arguments of the schedule, as JSON: '{\"num_cycles\": 2}'.",
        kind=dict,
        on_resume=change_schedule_options,
    )
    warmup_steps: float = argument(
        0,
        help="Steps in which the learning rate rises from 0. Below 1: a fraction of all steps.",
        number=Range(minimum=0),
        on_resume=change_warmup,
    )


@dataclass
class OptimizerArguments:
    """Optimizer and its settings."""

    optim: OptimizerNames | str = argument(
        "adamw_torch_fused", help="Name of the optimizer.", choices=OptimizerNames, on_resume=keep_optimizer
    )
    optim_args: str | None = argument(
        None, help="Further arguments of the optimizer, as `name=value,name=value`.", on_resume=keep_optimizer
    )
    weight_decay: float = argument(
        0.0,
        help="Weight decay; not applied to biases and normalization layers.",
        number=Range(minimum=0),
        on_resume=keep_optimizer,
    )
    adam_beta1: float = argument(
        0.9,
        help="Decay rate of the running mean of gradients in Adam-like optimizers.",
        number=Range(minimum=0, below=1),
        on_resume=keep_optimizer,
    )
    adam_beta2: float = argument(
        0.999,
        help="Decay rate of the running mean of squared gradients in Adam-like optimizers.",
        number=Range(minimum=0, below=1),
        on_resume=keep_optimizer,
    )
    adam_epsilon: float = argument(
        1e-8,
        help="Added to the denominator of an Adam-like update, so that it is never 0.",
        number=Range(minimum=0),
        on_resume=keep_optimizer,
    )
    optim_target_modules: None | str | list[str] = argument(  # noqa: RUF036 - see report_to in reporting.py
        None,
        help="Linear layers that a low-rank optimizer (GaLore, APOLLO) projects: 'all-linear', a pattern, or a list.",
        on_resume=keep_optimizer,
    )


@dataclass
class GradientArguments:
    """Gradient of an optimizer step."""

    gradient_accumulation_steps: int = argument(
        1,
        help="Micro-batches whose gradients are accumulated for one optimizer step.",
        number=Range(minimum=1, whole=True),
        on_resume=change_numbers,
    )
    average_tokens_across_devices: bool = argument(
        True,
        help="Weigh every token equally over all processes, instead of every process equally.",
        on_resume=change_across_processes,
    )
    max_grad_norm: float = argument(
        1.0,
        help="Gradients with a larger norm are scaled down to it. 0: no clipping.",
        number=Range(),
        off=0,
        on_resume=change_numbers,
    )
    label_smoothing_factor: float = argument(
        0.0,
        help="Share of a target's probability that is spread over all other classes.",
        number=Range(minimum=0, maximum=1),
        on_resume=change_numbers,
    )
