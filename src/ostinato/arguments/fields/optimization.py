"""Arguments for the length of a run, the learning rate, the optimizer and the gradient."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.choices import OptimizerNames, SchedulerType


@dataclass
class RunArguments:
    """Where a run writes, and how long it is."""

    output_dir: str | None = field(
        default=None,
        metadata={"help": "The directory for all that a run writes. Not given: trainer_output."},
    )
    per_device_train_batch_size: int = field(
        default=8, metadata={"help": "Rows in one training micro-batch of one process."}
    )
    num_train_epochs: float = field(
        default=3.0,
        metadata={"help": "Passes over the training data; may end within one (2.5). Not read when max_steps is set."},
    )
    max_steps: int = field(
        default=-1,
        metadata={"help": "Optimizer steps to take, repeating the data when it runs out. -1 leaves it to the epochs."},
    )


@dataclass
class ScheduleArguments:
    """How the learning rate moves."""

    learning_rate: float = field(
        default=5e-5, metadata={"help": "The rate at the end of the warm-up: the highest one."}
    )
    lr_scheduler_type: SchedulerType | str = field(
        default="linear", metadata={"help": "The shape of the learning rate after the warm-up."}
    )
    lr_scheduler_kwargs: dict | str | None = field(
        default=None,
        metadata={"help": "Numbers the schedule takes beyond the usual ones, as JSON: '{\"num_cycles\": 2}'."},
    )
    warmup_steps: float = field(
        default=0,
        metadata={"help": "Steps over which the rate rises from 0. Below 1 it is a share of all steps."},
    )


@dataclass
class OptimizerArguments:
    """How weights are updated."""

    optim: OptimizerNames | str = field(
        default="adamw_torch_fused", metadata={"help": "The name of the optimizer that updates the weights."}
    )
    optim_args: str | None = field(
        default=None, metadata={"help": "Further settings of the optimizer, as `name=value,name=value`."}
    )
    weight_decay: float = field(
        default=0.0, metadata={"help": "How strongly weights are pulled to 0; biases and norms are left alone."}
    )
    adam_beta1: float = field(
        default=0.9, metadata={"help": "How much of the running mean of gradients an Adam-like step keeps."}
    )
    adam_beta2: float = field(
        default=0.999, metadata={"help": "How much of the running mean of squared gradients an Adam-like step keeps."}
    )
    adam_epsilon: float = field(
        default=1e-8, metadata={"help": "Added to the divisor of an Adam-like step, so that it is never 0."}
    )
    optim_target_modules: None | str | list[str] = field(  # noqa: RUF036 - see report_to in reporting.py
        default=None, metadata={"help": "The modules that a low-rank optimizer (GaLore, APOLLO) treats specially."}
    )


@dataclass
class GradientArguments:
    """How a gradient is put together before it reaches the optimizer."""

    gradient_accumulation_steps: int = field(
        default=1, metadata={"help": "Micro-batches whose gradients are added up before one optimizer step."}
    )
    average_tokens_across_devices: bool = field(
        default=True,
        metadata={"help": "Weigh every token alike over all processes, instead of every process alike."},
    )
    max_grad_norm: float = field(
        default=1.0, metadata={"help": "Gradients longer than this are shortened to it; 0 leaves them as they are."}
    )
    label_smoothing_factor: float = field(
        default=0.0, metadata={"help": "The share of probability that a target gives away to all other classes."}
    )
