"""The closed sets of words that arguments accept, under the names that transformers gives them."""

from __future__ import annotations

import difflib
from enum import Enum
from typing import Any

from .errors import ConfigError


class Choice(str, Enum):
    """A string with a fixed set of values; the error for any other value lists the valid ones."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        if isinstance(value, Enum):  # another library's enum of the same words
            return cls(value.value)
        valid = [member.value for member in cls]
        near = difflib.get_close_matches(str(value), valid, n=1, cutoff=0.5)
        raise ConfigError(
            what=f"{value!r} is not a valid {cls.__name__}",
            why=f"please select one of {valid}",
            fix=f"did you mean {near[0]!r}?" if near else "use one of the values above",
        )

    # Printed as transformers prints them: `str()` is `IntervalStrategy.STEPS`, `.value` is "steps".


class IntervalStrategy(Choice):
    """The frequency of a recurring action: never, every N steps, every epoch."""

    NO = "no"
    STEPS = "steps"
    EPOCH = "epoch"


class SaveStrategy(Choice):
    """The times at which checkpoints are written."""

    NO = "no"
    STEPS = "steps"
    EPOCH = "epoch"
    BEST = "best"


class ResumeMode(Choice):
    """What is loaded from a checkpoint: the run as it is, the run for more steps, or weights for a new run."""

    RESUME = "resume"
    EXTEND = "extend"
    FORK = "fork"
    FORK_WITH_OPTIMIZER = "fork_with_optimizer"


class HubStrategy(Choice):
    """What is pushed to the hub, and when."""

    END = "end"
    EVERY_SAVE = "every_save"
    CHECKPOINT = "checkpoint"
    ALL_CHECKPOINTS = "all_checkpoints"


class SchedulerType(Choice):
    """The shapes of a learning-rate schedule."""

    LINEAR = "linear"
    COSINE = "cosine"
    COSINE_WITH_RESTARTS = "cosine_with_restarts"
    POLYNOMIAL = "polynomial"
    CONSTANT = "constant"
    CONSTANT_WITH_WARMUP = "constant_with_warmup"
    INVERSE_SQRT = "inverse_sqrt"
    REDUCE_ON_PLATEAU = "reduce_lr_on_plateau"
    COSINE_WITH_MIN_LR = "cosine_with_min_lr"
    COSINE_WARMUP_WITH_MIN_LR = "cosine_warmup_with_min_lr"
    WARMUP_STABLE_DECAY = "warmup_stable_decay"
    GREEDY = "greedy"


class OptimizerNames(Choice):
    """The optimizers; `optim/optimizers.py` declares where each comes from and what it is created with."""

    ADAMW_TORCH = "adamw_torch"
    ADAMW_TORCH_FUSED = "adamw_torch_fused"
    ADAMW_TORCH_XLA = "adamw_torch_xla"
    ADAMW_TORCH_NPU_FUSED = "adamw_torch_npu_fused"
    ADAFACTOR = "adafactor"
    ADAMW_ANYPRECISION = "adamw_anyprecision"
    ADAMW_TORCH_4BIT = "adamw_torch_4bit"
    ADAMW_TORCH_8BIT = "adamw_torch_8bit"
    ADEMAMIX = "ademamix"
    SGD = "sgd"
    ADAGRAD = "adagrad"
    ADAMW_BNB = "adamw_bnb_8bit"
    ADAMW_8BIT = "adamw_8bit"
    ADEMAMIX_8BIT = "ademamix_8bit"
    LION_8BIT = "lion_8bit"
    LION = "lion_32bit"
    PAGED_ADAMW = "paged_adamw_32bit"
    PAGED_ADAMW_8BIT = "paged_adamw_8bit"
    PAGED_ADEMAMIX = "paged_ademamix_32bit"
    PAGED_ADEMAMIX_8BIT = "paged_ademamix_8bit"
    PAGED_LION = "paged_lion_32bit"
    PAGED_LION_8BIT = "paged_lion_8bit"
    RMSPROP = "rmsprop"
    RMSPROP_BNB = "rmsprop_bnb"
    RMSPROP_8BIT = "rmsprop_bnb_8bit"
    RMSPROP_32BIT = "rmsprop_bnb_32bit"
    GALORE_ADAMW = "galore_adamw"
    GALORE_ADAMW_8BIT = "galore_adamw_8bit"
    GALORE_ADAFACTOR = "galore_adafactor"
    GALORE_ADAMW_LAYERWISE = "galore_adamw_layerwise"
    GALORE_ADAMW_8BIT_LAYERWISE = "galore_adamw_8bit_layerwise"
    GALORE_ADAFACTOR_LAYERWISE = "galore_adafactor_layerwise"
    LOMO = "lomo"
    ADALOMO = "adalomo"
    GROKADAMW = "grokadamw"
    SCHEDULE_FREE_RADAM = "schedule_free_radam"
    SCHEDULE_FREE_ADAMW = "schedule_free_adamw"
    SCHEDULE_FREE_SGD = "schedule_free_sgd"
    APOLLO_ADAMW = "apollo_adamw"
    APOLLO_ADAMW_LAYERWISE = "apollo_adamw_layerwise"
    STABLE_ADAMW = "stable_adamw"

    @property
    def is_low_rank(self) -> bool:
        """Whether it projects the gradients of chosen layers, `optim_target_modules`, to a lower rank."""
        return self.value.startswith(("galore_", "apollo_"))

    @property
    def is_layerwise(self) -> bool:
        """Whether every parameter has an optimizer of its own, which steps as soon as its gradient is known."""
        return self.value.endswith("_layerwise")

    @property
    def steps_in_backward(self) -> bool:
        """Whether it changes the weights during the backward pass, so that no gradient is left to clip."""
        return self.is_layerwise or self in (OptimizerNames.LOMO, OptimizerNames.ADALOMO)


class ParallelMode(Enum):
    """The number of processes and devices that take part."""

    NOT_PARALLEL = "not_parallel"
    NOT_DISTRIBUTED = "not_distributed"
    DISTRIBUTED = "distributed"
    SAGEMAKER_MODEL_PARALLEL = "sagemaker_model_parallel"
    SAGEMAKER_DATA_PARALLEL = "sagemaker_data_parallel"
    TPU = "tpu"


class HPSearchBackend(Choice):
    """The library that proposes hyper-parameters."""

    OPTUNA = "optuna"
    RAY = "ray"
    WANDB = "wandb"


class FSDPOption(Choice):
    """The words of transformers' `fsdp` argument."""

    FULL_SHARD = "full_shard"
    SHARD_GRAD_OP = "shard_grad_op"
    NO_SHARD = "no_shard"
    HYBRID_SHARD = "hybrid_shard"
    HYBRID_SHARD_ZERO2 = "hybrid_shard_zero2"
    OFFLOAD = "offload"
    AUTO_WRAP = "auto_wrap"


class DebugOption(Choice):
    """The words of transformers' `debug` argument."""

    UNDERFLOW_OVERFLOW = "underflow_overflow"
    TPU_METRICS_DEBUG = "tpu_metrics_debug"
