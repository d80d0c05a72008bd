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
    from .arguments.accelerator_config import AcceleratorConfig
    from .arguments.fields.extensions import Extras
    from .arguments.parser import HfArg, HfArgumentParser
    from .arguments.parser_types import make_choice_type_function, string_to_bool
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
    from .checkpoint.file_names import TRAINER_STATE_NAME, TRAINING_ARGS_NAME
    from .checkpoint.retention import PREFIX_CHECKPOINT_DIR, get_last_checkpoint, sort_checkpoints
    from .core.choices import (
        DebugOption,
        FSDPOption,
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
    from .core.memory_tracker import TrainerMemoryTracker
    from .core.metrics_text import metrics_format
    from .core.nested_data import (
        denumpify_detensorize,
        find_batch_size,
        nested_concat,
        nested_detach,
        nested_new_like,
        nested_numpify,
        nested_truncate,
    )
    from .core.out_of_memory import find_executable_batch_size
    from .core.outputs import BestRun, EvalLoopOutput, EvalPrediction, PredictionOutput, TrainOutput
    from .core.random import enable_full_determinism, set_seed
    from .core.state import ExportableState, TrainerControl, TrainerState
    from .core.timing import speed_metrics
    from .core.tree import has_length
    from .core.world import is_main_process
    from .data.collators.choice_rows import DataCollatorForMultipleChoice
    from .data.collators.default import (
        DataCollator,
        DefaultDataCollator,
        default_data_collator,
        numpy_default_data_collator,
        torch_default_data_collator,
    )
    from .data.collators.flattening import DataCollatorWithFlattening
    from .data.collators.language_modeling import DataCollatorForLanguageModeling
    from .data.collators.padding import DataCollatorWithPadding
    from .data.collators.permutation import DataCollatorForPermutationLanguageModeling
    from .data.collators.sequence_pairs import DataCollatorForSeq2Seq
    from .data.collators.token_labels import DataCollatorForTokenClassification
    from .data.collators.token_rows import DataCollatorMixin
    from .data.columns import RemoveColumnsCollator
    from .data.eval_set import EvalSet
    from .data.samplers.epoch_sampler import LengthGroupedSampler, get_length_grouped_indices
    from .data.samplers.process_samplers import DistributedLengthGroupedSampler, ShardSampler
    from .data.streams.stream_shard import IterableDatasetShard
    from .data.worker_streams import seed_worker
    from .evaluation.eval_container import EvalLoopContainer
    from .journal.journal_callback import JournalCallback
    from .loss.signatures import number_of_arguments
    from .loss.smoothing import LabelSmoother
    from .optim.adafactor import Adafactor, AdafactorSchedule, get_adafactor_schedule
    from .optim.greedy import GreedyLR, StreamingAverage, get_greedy_schedule
    from .optim.groups import get_parameter_names
    from .optim.layer_rates import optimizer_with_rates
    from .optim.schedulers import (
        TYPE_TO_SCHEDULER_FUNCTION,
        get_constant_schedule,
        get_constant_schedule_with_warmup,
        get_cosine_schedule_with_warmup,
        get_cosine_with_hard_restarts_schedule_with_warmup,
        get_cosine_with_min_lr_schedule_with_warmup,
        get_cosine_with_min_lr_schedule_with_warmup_lr_rate,
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
    from .search.backends import (
        ALL_HYPERPARAMETER_SEARCH_BACKENDS,
        HyperParamSearchBackendBase,
        OptunaBackend,
        RayTuneBackend,
        WandbBackend,
        default_hp_search_backend,
        run_hp_search_optuna,
        run_hp_search_ray,
        run_hp_search_wandb,
    )
    from .search.defaults import (
        default_compute_objective,
        default_hp_space_optuna,
        default_hp_space_ray,
        default_hp_space_wandb,
    )
    from .search.short_names import TrialShortNamer
    from .seq2seq_trainer import Seq2SeqTrainer
    from .strategies.collectives import distributed_concat, nested_gather
    from .strategies.process_group import total_processes_number
    from .tasks.question_trainers import QuestionAnsweringSeq2SeqTrainer, QuestionAnsweringTrainer
    from .trackers import (
        INTEGRATION_TO_CALLBACK,
        get_available_reporting_integrations,
        get_reporting_integration_callbacks,
    )
    from .trackers.base import TrackerCallback, rewrite_logs
    from .trackers.clearml import ClearMLCallback
    from .trackers.codecarbon import CodeCarbonCallback
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
    from .trainer import DEFAULT_CALLBACKS, DEFAULT_PROGRESS_CALLBACK, Trainer

__version__ = "0.2.0"

_NAMES_BY_MODULE = {
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
    "checkpoint.retention": ["PREFIX_CHECKPOINT_DIR", "get_last_checkpoint", "sort_checkpoints"],
    "arguments.fields.extensions": ["Extras"],
    "arguments.parser": ["HfArg", "HfArgumentParser"],
    "arguments.seq2seq_args": ["Seq2SeqTrainingArguments"],
    "arguments.training_args": ["TrainingArguments"],
    "core.choices": [
        "DebugOption",
        "FSDPOption",
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
    "data.collators.default": [
        "DataCollator",
        "DefaultDataCollator",
        "default_data_collator",
        "numpy_default_data_collator",
        "torch_default_data_collator",
    ],
    "data.collators.flattening": ["DataCollatorWithFlattening"],
    "data.collators.language_modeling": ["DataCollatorForLanguageModeling"],
    "data.collators.choice_rows": ["DataCollatorForMultipleChoice"],
    "data.collators.padding": ["DataCollatorWithPadding"],
    "data.collators.permutation": ["DataCollatorForPermutationLanguageModeling"],
    "data.collators.sequence_pairs": ["DataCollatorForSeq2Seq"],
    "data.collators.token_labels": ["DataCollatorForTokenClassification"],
    "data.eval_set": ["EvalSet"],
    "trackers.clearml": ["ClearMLCallback"],
    "trackers.codecarbon": ["CodeCarbonCallback"],
    "trackers.comet": ["CometCallback"],
    "trackers.dvclive": ["DVCLiveCallback"],
    "trackers.files": ["CsvCallback", "JsonlCallback"],
    "trackers.mlflow": ["MLflowCallback"],
    "trackers.neptune": ["NeptuneCallback"],
    "trackers.sink": ["RunInfo", "Sink"],
    "trackers.swanlab": ["SwanLabCallback"],
    "trackers.tensorboard": ["TensorBoardCallback"],
    "trackers.base": ["TrackerCallback", "rewrite_logs"],
    "trackers.trackio": ["TrackioCallback"],
    "trackers.wandb": ["WandbCallback"],
    "loss.smoothing": ["LabelSmoother"],
    "optim.adafactor": ["Adafactor", "AdafactorSchedule", "get_adafactor_schedule"],
    "optim.layer_rates": ["optimizer_with_rates"],
    "optim.schedulers": [
        "TYPE_TO_SCHEDULER_FUNCTION",
        "get_constant_schedule",
        "get_constant_schedule_with_warmup",
        "get_cosine_schedule_with_warmup",
        "get_cosine_with_hard_restarts_schedule_with_warmup",
        "get_cosine_with_min_lr_schedule_with_warmup",
        "get_cosine_with_min_lr_schedule_with_warmup_lr_rate",
        "get_inverse_sqrt_schedule",
        "get_linear_schedule_with_warmup",
        "get_polynomial_decay_schedule_with_warmup",
        "get_reduce_on_plateau_schedule",
        "get_scheduler",
        "get_wsd_schedule",
    ],
    "seq2seq_trainer": ["Seq2SeqTrainer"],
    "tasks.question_trainers": ["QuestionAnsweringSeq2SeqTrainer", "QuestionAnsweringTrainer"],
    "trainer": ["DEFAULT_CALLBACKS", "DEFAULT_PROGRESS_CALLBACK", "Trainer"],
    "core.nested_data": [
        "denumpify_detensorize",
        "find_batch_size",
        "nested_concat",
        "nested_detach",
        "nested_new_like",
        "nested_numpify",
        "nested_truncate",
    ],
    "core.out_of_memory": ["find_executable_batch_size"],
    "core.timing": ["speed_metrics"],
    "core.memory_tracker": ["TrainerMemoryTracker"],
    "core.metrics_text": ["metrics_format"],
    "core.world": ["is_main_process"],
    "strategies.process_group": ["total_processes_number"],
    "strategies.collectives": ["distributed_concat", "nested_gather"],
    "data.samplers.process_samplers": ["DistributedLengthGroupedSampler", "ShardSampler"],
    "data.streams.stream_shard": ["IterableDatasetShard"],
    "evaluation.eval_container": ["EvalLoopContainer"],
    "loss.signatures": ["number_of_arguments"],
    "arguments.accelerator_config": ["AcceleratorConfig"],
    "data.collators.token_rows": ["DataCollatorMixin"],
    "optim.greedy": ["GreedyLR", "StreamingAverage", "get_greedy_schedule"],
    "trackers": [
        "INTEGRATION_TO_CALLBACK",
        "get_available_reporting_integrations",
        "get_reporting_integration_callbacks",
    ],
    "data.samplers.epoch_sampler": ["LengthGroupedSampler", "get_length_grouped_indices"],
    "data.columns": ["RemoveColumnsCollator"],
    "checkpoint.file_names": ["TRAINER_STATE_NAME", "TRAINING_ARGS_NAME"],
    "optim.groups": ["get_parameter_names"],
    "core.tree": ["has_length"],
    "arguments.parser_types": ["make_choice_type_function", "string_to_bool"],
    "search.backends": [
        "ALL_HYPERPARAMETER_SEARCH_BACKENDS",
        "HyperParamSearchBackendBase",
        "OptunaBackend",
        "RayTuneBackend",
        "WandbBackend",
        "default_hp_search_backend",
        "run_hp_search_optuna",
        "run_hp_search_ray",
        "run_hp_search_wandb",
    ],
    "search.defaults": [
        "default_compute_objective",
        "default_hp_space_optuna",
        "default_hp_space_ray",
        "default_hp_space_wandb",
    ],
    "search.short_names": ["TrialShortNamer"],
    "data.worker_streams": ["seed_worker"],
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

__all__ = [
    "ALL_HYPERPARAMETER_SEARCH_BACKENDS",
    "AcceleratorConfig",
    "Adafactor",
    "AdafactorSchedule",
    "BestRun",
    "CallbackHandler",
    "CheckpointError",
    "ClearMLCallback",
    "CodeCarbonCallback",
    "CometCallback",
    "ConfigError",
    "ControlFileCallback",
    "CsvCallback",
    "DEFAULT_CALLBACKS",
    "DEFAULT_PROGRESS_CALLBACK",
    "DVCLiveCallback",
    "DataCollator",
    "DataCollatorForLanguageModeling",
    "DataCollatorForMultipleChoice",
    "DataCollatorForPermutationLanguageModeling",
    "DataCollatorForSeq2Seq",
    "DataCollatorForTokenClassification",
    "DataCollatorMixin",
    "DataCollatorWithFlattening",
    "DataCollatorWithPadding",
    "DataError",
    "DebugOption",
    "DefaultDataCollator",
    "DefaultFlowCallback",
    "DistributedLengthGroupedSampler",
    "EMACallback",
    "EarlyStoppingCallback",
    "EvalLoopContainer",
    "EvalLoopOutput",
    "EvalPrediction",
    "EvalSet",
    "ExportableState",
    "Extras",
    "FSDPOption",
    "FreezeCallback",
    "GradientStatisticsCallback",
    "GreedyLR",
    "HPSearchBackend",
    "HfArg",
    "HfArgumentParser",
    "HubStrategy",
    "HyperParamSearchBackendBase",
    "INTEGRATION_TO_CALLBACK",
    "IntervalStrategy",
    "IterableDatasetShard",
    "JournalCallback",
    "JsonlCallback",
    "LabelSmoother",
    "LengthGroupedSampler",
    "MLflowCallback",
    "MetricError",
    "ModelOutputError",
    "NeptuneCallback",
    "NonFiniteError",
    "NotSupportedError",
    "NotebookProgressCallback",
    "OptimizerNames",
    "OptunaBackend",
    "OstinatoError",
    "PREFIX_CHECKPOINT_DIR",
    "ParallelMode",
    "PredictionOutput",
    "PrinterCallback",
    "ProfilerCallback",
    "ProgressCallback",
    "QuestionAnsweringSeq2SeqTrainer",
    "QuestionAnsweringTrainer",
    "RatesCallback",
    "RayTuneBackend",
    "RemoveColumnsCollator",
    "RunInfo",
    "SaveStrategy",
    "SchedulerType",
    "Seq2SeqTrainer",
    "Seq2SeqTrainingArguments",
    "ShardSampler",
    "Sink",
    "StreamingAverage",
    "SwanLabCallback",
    "TRAINER_STATE_NAME",
    "TRAINING_ARGS_NAME",
    "TYPE_TO_SCHEDULER_FUNCTION",
    "TensorBoardCallback",
    "TimeLimitCallback",
    "TrackerCallback",
    "TrackioCallback",
    "TrainOutput",
    "Trainer",
    "TrainerCallback",
    "TrainerControl",
    "TrainerMemoryTracker",
    "TrainerState",
    "TrainingArguments",
    "TrialShortNamer",
    "WandbBackend",
    "WandbCallback",
    "default_compute_objective",
    "default_data_collator",
    "default_hp_search_backend",
    "default_hp_space_optuna",
    "default_hp_space_ray",
    "default_hp_space_wandb",
    "denumpify_detensorize",
    "distributed_concat",
    "enable_full_determinism",
    "find_batch_size",
    "find_executable_batch_size",
    "get_adafactor_schedule",
    "get_available_reporting_integrations",
    "get_constant_schedule",
    "get_constant_schedule_with_warmup",
    "get_cosine_schedule_with_warmup",
    "get_cosine_with_hard_restarts_schedule_with_warmup",
    "get_cosine_with_min_lr_schedule_with_warmup",
    "get_cosine_with_min_lr_schedule_with_warmup_lr_rate",
    "get_greedy_schedule",
    "get_inverse_sqrt_schedule",
    "get_last_checkpoint",
    "get_length_grouped_indices",
    "get_linear_schedule_with_warmup",
    "get_parameter_names",
    "get_polynomial_decay_schedule_with_warmup",
    "get_reduce_on_plateau_schedule",
    "get_reporting_integration_callbacks",
    "get_scheduler",
    "get_wsd_schedule",
    "has_length",
    "is_main_process",
    "make_choice_type_function",
    "metrics_format",
    "nested_concat",
    "nested_detach",
    "nested_gather",
    "nested_new_like",
    "nested_numpify",
    "nested_truncate",
    "number_of_arguments",
    "numpy_default_data_collator",
    "optimizer_with_rates",
    "rewrite_logs",
    "run_hp_search_optuna",
    "run_hp_search_ray",
    "run_hp_search_wandb",
    "seed_worker",
    "set_seed",
    "sort_checkpoints",
    "speed_metrics",
    "string_to_bool",
    "torch_default_data_collator",
    "total_processes_number",
    "track",
]


_load = _load_on_use(__name__, _NAMES_BY_MODULE)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF and name != "logging":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _MODULE_OF.get(name, "").startswith("arguments."):
        # Arguments have `main_process_first`: the module that owns the process group has to provide its barrier.
        import_module(".strategies.process_group", __name__)
    return _load(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
