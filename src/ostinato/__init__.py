"""Ostinato: the Trainer API of transformers, written anew.

    from ostinato import Trainer, TrainingArguments

Names are loaded when first used, so importing the package costs no more than it must.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import logging as logging
    from .callbacks.averaging import EMACallback
    from .callbacks.base import CallbackHandler, TrainerCallback
    from .callbacks.control_file import ControlFileCallback
    from .callbacks.early_stopping import EarlyStoppingCallback
    from .callbacks.flow import DefaultFlowCallback
    from .callbacks.freezing import FreezeCallback
    from .callbacks.gradients import GradientStatisticsCallback
    from .callbacks.journal import JournalCallback
    from .callbacks.notebook import NotebookProgressCallback
    from .callbacks.printer import PrinterCallback
    from .callbacks.profiling import ProfilerCallback
    from .callbacks.progress import ProgressCallback
    from .callbacks.rates import RatesCallback
    from .callbacks.time_limit import TimeLimitCallback
    from .checkpoint.retention import PREFIX_CHECKPOINT_DIR, get_last_checkpoint
    from .config.parser import HfArg, HfArgumentParser
    from .config.seq2seq_args import Seq2SeqTrainingArguments
    from .config.training_args import TrainingArguments
    from .core.choices import (
        HPSearchBackend,
        HubStrategy,
        IntervalStrategy,
        OptimizerNames,
        ParallelMode,
        SaveStrategy,
        SchedulerType,
    )
    from .core.errors import (
        CheckpointError,
        ConfigError,
        DataError,
        MetricError,
        ModelOutputError,
        NonFiniteError,
        NotSupportedError,
        OstinatoError,
    )
    from .core.outputs import BestRun, EvalLoopOutput, EvalPrediction, PredictionOutput, TrainOutput
    from .core.random import enable_full_determinism, set_seed
    from .core.state import ExportableState, TrainerControl, TrainerState
    from .core.tracking import track
    from .data.collators.default import DataCollator, DefaultDataCollator, default_data_collator
    from .data.collators.flattening import DataCollatorWithFlattening
    from .data.collators.language_modeling import DataCollatorForLanguageModeling
    from .data.collators.multiple_choice import DataCollatorForMultipleChoice
    from .data.collators.padding import DataCollatorWithPadding
    from .data.collators.permutation import DataCollatorForPermutationLanguageModeling
    from .data.collators.seq2seq import DataCollatorForSeq2Seq
    from .data.collators.token_classification import DataCollatorForTokenClassification
    from .data.eval_set import EvalSet
    from .integrations.clearml import ClearMLCallback
    from .integrations.comet import CometCallback
    from .integrations.dvclive import DVCLiveCallback
    from .integrations.files import CsvCallback, JsonlCallback
    from .integrations.mlflow import MLflowCallback
    from .integrations.neptune import NeptuneCallback
    from .integrations.sink import RunInfo, Sink
    from .integrations.swanlab import SwanLabCallback
    from .integrations.tensorboard import TensorBoardCallback
    from .integrations.tracker import TrackerCallback
    from .integrations.trackio import TrackioCallback
    from .integrations.wandb import WandbCallback
    from .objective.smoothing import LabelSmoother
    from .optim.adafactor import Adafactor
    from .optim.rates import optimizer_with_rates
    from .optim.schedulers import (
        get_constant_schedule,
        get_constant_schedule_with_warmup,
        get_cosine_schedule_with_warmup,
        get_cosine_with_hard_restarts_schedule_with_warmup,
        get_cosine_with_min_lr_schedule_with_warmup,
        get_inverse_sqrt_schedule,
        get_linear_schedule_with_warmup,
        get_polynomial_decay_schedule_with_warmup,
        get_reduce_on_plateau_schedule,
        get_scheduler,
        get_wsd_schedule,
    )
    from .seq2seq_trainer import Seq2SeqTrainer
    from .tasks.answering import QuestionAnsweringSeq2SeqTrainer, QuestionAnsweringTrainer
    from .trainer import Trainer

__version__ = "0.1.0"

_HOMES = {
    "callbacks.averaging": ["EMACallback"],
    "callbacks.base": ["CallbackHandler", "TrainerCallback"],
    "callbacks.control_file": ["ControlFileCallback"],
    "callbacks.early_stopping": ["EarlyStoppingCallback"],
    "callbacks.flow": ["DefaultFlowCallback"],
    "callbacks.journal": ["JournalCallback"],
    "callbacks.printer": ["PrinterCallback"],
    "callbacks.notebook": ["NotebookProgressCallback"],
    "callbacks.freezing": ["FreezeCallback"],
    "callbacks.gradients": ["GradientStatisticsCallback"],
    "callbacks.profiling": ["ProfilerCallback"],
    "callbacks.progress": ["ProgressCallback"],
    "callbacks.rates": ["RatesCallback"],
    "callbacks.time_limit": ["TimeLimitCallback"],
    "checkpoint.retention": ["PREFIX_CHECKPOINT_DIR", "get_last_checkpoint"],
    "config.parser": ["HfArg", "HfArgumentParser"],
    "config.seq2seq_args": ["Seq2SeqTrainingArguments"],
    "config.training_args": ["TrainingArguments"],
    "core.choices": [
        "HPSearchBackend",
        "HubStrategy",
        "IntervalStrategy",
        "OptimizerNames",
        "ParallelMode",
        "SaveStrategy",
        "SchedulerType",
    ],
    "core.errors": [
        "CheckpointError",
        "ConfigError",
        "DataError",
        "MetricError",
        "ModelOutputError",
        "NonFiniteError",
        "NotSupportedError",
        "OstinatoError",
    ],
    "core.outputs": ["BestRun", "EvalLoopOutput", "EvalPrediction", "PredictionOutput", "TrainOutput"],
    "core.random": ["enable_full_determinism", "set_seed"],
    "core.tracking": ["track"],
    "core.state": ["ExportableState", "TrainerControl", "TrainerState"],
    "data.collators.default": ["DataCollator", "DefaultDataCollator", "default_data_collator"],
    "data.collators.flattening": ["DataCollatorWithFlattening"],
    "data.collators.language_modeling": ["DataCollatorForLanguageModeling"],
    "data.collators.multiple_choice": ["DataCollatorForMultipleChoice"],
    "data.collators.padding": ["DataCollatorWithPadding"],
    "data.collators.permutation": ["DataCollatorForPermutationLanguageModeling"],
    "data.collators.seq2seq": ["DataCollatorForSeq2Seq"],
    "data.collators.token_classification": ["DataCollatorForTokenClassification"],
    "data.eval_set": ["EvalSet"],
    "integrations.clearml": ["ClearMLCallback"],
    "integrations.comet": ["CometCallback"],
    "integrations.dvclive": ["DVCLiveCallback"],
    "integrations.files": ["CsvCallback", "JsonlCallback"],
    "integrations.mlflow": ["MLflowCallback"],
    "integrations.neptune": ["NeptuneCallback"],
    "integrations.sink": ["RunInfo", "Sink"],
    "integrations.swanlab": ["SwanLabCallback"],
    "integrations.tensorboard": ["TensorBoardCallback"],
    "integrations.tracker": ["TrackerCallback"],
    "integrations.trackio": ["TrackioCallback"],
    "integrations.wandb": ["WandbCallback"],
    "objective.smoothing": ["LabelSmoother"],
    "optim.adafactor": ["Adafactor"],
    "optim.rates": ["optimizer_with_rates"],
    "optim.schedulers": [
        "get_constant_schedule",
        "get_constant_schedule_with_warmup",
        "get_cosine_schedule_with_warmup",
        "get_cosine_with_hard_restarts_schedule_with_warmup",
        "get_cosine_with_min_lr_schedule_with_warmup",
        "get_inverse_sqrt_schedule",
        "get_linear_schedule_with_warmup",
        "get_polynomial_decay_schedule_with_warmup",
        "get_reduce_on_plateau_schedule",
        "get_scheduler",
        "get_wsd_schedule",
    ],
    "seq2seq_trainer": ["Seq2SeqTrainer"],
    "tasks.answering": ["QuestionAnsweringSeq2SeqTrainer", "QuestionAnsweringTrainer"],
    "trainer": ["Trainer"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Adafactor",
    "BestRun",
    "CallbackHandler",
    "CheckpointError",
    "ClearMLCallback",
    "CometCallback",
    "ConfigError",
    "CsvCallback",
    "DVCLiveCallback",
    "ControlFileCallback",
    "DataCollator",
    "DataCollatorForLanguageModeling",
    "DataCollatorForMultipleChoice",
    "DataCollatorForPermutationLanguageModeling",
    "DataCollatorForSeq2Seq",
    "DataCollatorForTokenClassification",
    "DataCollatorWithFlattening",
    "DataCollatorWithPadding",
    "DataError",
    "DefaultDataCollator",
    "DefaultFlowCallback",
    "EMACallback",
    "EarlyStoppingCallback",
    "EvalLoopOutput",
    "EvalPrediction",
    "EvalSet",
    "ExportableState",
    "FreezeCallback",
    "GradientStatisticsCallback",
    "HPSearchBackend",
    "HfArg",
    "HfArgumentParser",
    "HubStrategy",
    "IntervalStrategy",
    "JournalCallback",
    "JsonlCallback",
    "LabelSmoother",
    "MLflowCallback",
    "MetricError",
    "ModelOutputError",
    "NeptuneCallback",
    "NonFiniteError",
    "NotSupportedError",
    "OptimizerNames",
    "OstinatoError",
    "PREFIX_CHECKPOINT_DIR",
    "ParallelMode",
    "PredictionOutput",
    "PrinterCallback",
    "NotebookProgressCallback",
    "ProfilerCallback",
    "ProgressCallback",
    "QuestionAnsweringSeq2SeqTrainer",
    "QuestionAnsweringTrainer",
    "RunInfo",
    "RatesCallback",
    "SaveStrategy",
    "SchedulerType",
    "Seq2SeqTrainer",
    "Seq2SeqTrainingArguments",
    "Sink",
    "SwanLabCallback",
    "TensorBoardCallback",
    "TrackerCallback",
    "TrackioCallback",
    "TimeLimitCallback",
    "TrainOutput",
    "Trainer",
    "TrainerCallback",
    "TrainerControl",
    "TrainerState",
    "TrainingArguments",
    "WandbCallback",
    "default_data_collator",
    "enable_full_determinism",
    "get_last_checkpoint",
    "get_constant_schedule",
    "get_constant_schedule_with_warmup",
    "get_cosine_schedule_with_warmup",
    "get_cosine_with_hard_restarts_schedule_with_warmup",
    "get_cosine_with_min_lr_schedule_with_warmup",
    "get_inverse_sqrt_schedule",
    "get_linear_schedule_with_warmup",
    "get_polynomial_decay_schedule_with_warmup",
    "get_reduce_on_plateau_schedule",
    "get_scheduler",
    "get_wsd_schedule",
    "optimizer_with_rates",
    "set_seed",
    "track",
]


def __getattr__(name: str) -> Any:
    if name == "logging":
        return import_module(".logging", __name__)
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home.startswith("config."):
        # Arguments have `main_process_first`: the room that owns the process group has to have introduced itself.
        import_module(".strategies.process_group", __name__)
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
