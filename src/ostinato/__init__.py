"""Ostinato: the Trainer API of transformers, written anew.

    from ostinato import Trainer, TrainingArguments

Names are loaded when first used, so importing the package costs no more than it must.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .core.lazy_package import load_on_use as _load_on_use

if TYPE_CHECKING:
    from . import logging as logging
    from .arguments.fields.extensions import Extras
    from .arguments.parser import HfArg, HfArgumentParser
    from .arguments.seq2seq_args import Seq2SeqTrainingArguments
    from .arguments.training_args import TrainingArguments
    from .callbacks.control_file import ControlFileCallback
    from .callbacks.early_stopping import EarlyStoppingCallback
    from .callbacks.events import TrainerCallback
    from .callbacks.flow import DefaultFlowCallback
    from .callbacks.freezing import FreezeCallback
    from .callbacks.gradient_stats import GradientStatisticsCallback
    from .callbacks.group_rates import RatesCallback
    from .callbacks.handler import CallbackHandler
    from .callbacks.profiler import ProfilerCallback
    from .callbacks.time_limit import TimeLimitCallback
    from .callbacks.weight_averaging import EMACallback
    from .checkpoint.retention import PREFIX_CHECKPOINT_DIR, get_last_checkpoint
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
    from .core.logged_numbers import track
    from .core.outputs import BestRun, EvalLoopOutput, EvalPrediction, PredictionOutput, TrainOutput
    from .core.random import enable_full_determinism, set_seed
    from .core.state import ExportableState, TrainerControl, TrainerState
    from .data.collators.choice_rows import DataCollatorForMultipleChoice
    from .data.collators.default import DataCollator, DefaultDataCollator, default_data_collator
    from .data.collators.flattening import DataCollatorWithFlattening
    from .data.collators.language_modeling import DataCollatorForLanguageModeling
    from .data.collators.padding import DataCollatorWithPadding
    from .data.collators.permutation import DataCollatorForPermutationLanguageModeling
    from .data.collators.sequence_pairs import DataCollatorForSeq2Seq
    from .data.collators.token_labels import DataCollatorForTokenClassification
    from .data.eval_set import EvalSet
    from .journal.journal_callback import JournalCallback
    from .loss.smoothing import LabelSmoother
    from .optim.adafactor import Adafactor
    from .optim.layer_rates import optimizer_with_rates
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
    from .progress.callback import ProgressCallback
    from .progress.notebook import NotebookProgressCallback
    from .progress.plain import PrinterCallback
    from .seq2seq_trainer import Seq2SeqTrainer
    from .tasks.question_trainers import QuestionAnsweringSeq2SeqTrainer, QuestionAnsweringTrainer
    from .trackers.base import TrackerCallback
    from .trackers.clearml import ClearMLCallback
    from .trackers.comet import CometCallback
    from .trackers.dvclive import DVCLiveCallback
    from .trackers.files import CsvCallback, JsonlCallback
    from .trackers.mlflow import MLflowCallback
    from .trackers.neptune import NeptuneCallback
    from .trackers.sink import RunInfo, Sink
    from .trackers.swanlab import SwanLabCallback
    from .trackers.tensorboard import TensorBoardCallback
    from .trackers.trackio import TrackioCallback
    from .trackers.wandb import WandbCallback
    from .trainer import Trainer

__version__ = "0.1.0"

_HOMES = {
    "callbacks.weight_averaging": ["EMACallback"],
    "callbacks.events": ["TrainerCallback"],
    "callbacks.handler": ["CallbackHandler"],
    "callbacks.control_file": ["ControlFileCallback"],
    "callbacks.early_stopping": ["EarlyStoppingCallback"],
    "callbacks.flow": ["DefaultFlowCallback"],
    "journal.journal_callback": ["JournalCallback"],
    "progress.plain": ["PrinterCallback"],
    "progress.notebook": ["NotebookProgressCallback"],
    "callbacks.freezing": ["FreezeCallback"],
    "callbacks.gradient_stats": ["GradientStatisticsCallback"],
    "callbacks.profiler": ["ProfilerCallback"],
    "progress.callback": ["ProgressCallback"],
    "callbacks.group_rates": ["RatesCallback"],
    "callbacks.time_limit": ["TimeLimitCallback"],
    "checkpoint.retention": ["PREFIX_CHECKPOINT_DIR", "get_last_checkpoint"],
    "arguments.fields.extensions": ["Extras"],
    "arguments.parser": ["HfArg", "HfArgumentParser"],
    "arguments.seq2seq_args": ["Seq2SeqTrainingArguments"],
    "arguments.training_args": ["TrainingArguments"],
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
    "core.logged_numbers": ["track"],
    "core.state": ["ExportableState", "TrainerControl", "TrainerState"],
    "data.collators.default": ["DataCollator", "DefaultDataCollator", "default_data_collator"],
    "data.collators.flattening": ["DataCollatorWithFlattening"],
    "data.collators.language_modeling": ["DataCollatorForLanguageModeling"],
    "data.collators.choice_rows": ["DataCollatorForMultipleChoice"],
    "data.collators.padding": ["DataCollatorWithPadding"],
    "data.collators.permutation": ["DataCollatorForPermutationLanguageModeling"],
    "data.collators.sequence_pairs": ["DataCollatorForSeq2Seq"],
    "data.collators.token_labels": ["DataCollatorForTokenClassification"],
    "data.eval_set": ["EvalSet"],
    "trackers.clearml": ["ClearMLCallback"],
    "trackers.comet": ["CometCallback"],
    "trackers.dvclive": ["DVCLiveCallback"],
    "trackers.files": ["CsvCallback", "JsonlCallback"],
    "trackers.mlflow": ["MLflowCallback"],
    "trackers.neptune": ["NeptuneCallback"],
    "trackers.sink": ["RunInfo", "Sink"],
    "trackers.swanlab": ["SwanLabCallback"],
    "trackers.tensorboard": ["TensorBoardCallback"],
    "trackers.base": ["TrackerCallback"],
    "trackers.trackio": ["TrackioCallback"],
    "trackers.wandb": ["WandbCallback"],
    "loss.smoothing": ["LabelSmoother"],
    "optim.adafactor": ["Adafactor"],
    "optim.layer_rates": ["optimizer_with_rates"],
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
    "tasks.question_trainers": ["QuestionAnsweringSeq2SeqTrainer", "QuestionAnsweringTrainer"],
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
    "Extras",
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


_load = _load_on_use(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF and name != "logging":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _HOME_OF.get(name, "").startswith("arguments."):
        # Arguments have `main_process_first`: the module that owns the process group has to provide its barrier.
        import_module(".strategies.process_group", __name__)
    return _load(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
