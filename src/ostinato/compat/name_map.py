"""Map from names of transformers to Ostinato's, which `ostinato exec` and `import ostinato.dropin` install.

A name that is in no row stays transformers' own: models, tokenizers and pipelines, but also parts of its trainer,
which `kept_names.py` lists with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

PACKAGE = "transformers"

_CALLBACKS = """CallbackHandler DefaultFlowCallback ExportableState PrinterCallback ProgressCallback TrainerCallback
    TrainerControl TrainerState"""
_COLLATORS = """DataCollator DataCollatorForLanguageModeling DataCollatorForMultipleChoice
    DataCollatorForPermutationLanguageModeling DataCollatorForSeq2Seq DataCollatorForTokenClassification
    DataCollatorWithFlattening DataCollatorWithPadding DefaultDataCollator default_data_collator"""
_SCHEDULES = """get_constant_schedule get_constant_schedule_with_warmup get_cosine_schedule_with_warmup
    get_cosine_with_hard_restarts_schedule_with_warmup get_cosine_with_min_lr_schedule_with_warmup
    get_inverse_sqrt_schedule get_linear_schedule_with_warmup get_polynomial_decay_schedule_with_warmup
    get_cosine_with_min_lr_schedule_with_warmup_lr_rate get_greedy_schedule get_reduce_on_plateau_schedule
    get_scheduler get_wsd_schedule"""
_RESULTS = """BestRun EvalLoopOutput EvalPrediction HPSearchBackend HubStrategy PREFIX_CHECKPOINT_DIR PredictionOutput
    RemoveColumnsCollator SaveStrategy TrainOutput TrainerMemoryTracker denumpify_detensorize enable_full_determinism
    find_executable_batch_size get_last_checkpoint has_length number_of_arguments seed_worker set_seed
    sort_checkpoints speed_metrics"""
_BACKENDS = "HyperParamSearchBackendBase OptunaBackend RayTuneBackend WandbBackend"
_DEFAULT_SPACES = "default_hp_space_optuna default_hp_space_ray default_hp_space_wandb"
_SEARCHES = "run_hp_search_optuna run_hp_search_ray run_hp_search_wandb"
_NESTED = "EvalLoopContainer IterableDatasetShard find_batch_size nested_detach nested_gather"

# Every module of transformers that a name of its trainer can be imported from, and the names replaced there.
MODULES: dict[str, tuple[str, ...]] = {
    module: tuple(names.split())
    for module, names in {
        "transformers": f"""Adafactor GreedyLR {_COLLATORS} {_SCHEDULES} DefaultFlowCallback EarlyStoppingCallback
            EvalPrediction HfArgumentParser IntervalStrategy PrinterCallback ProgressCallback SchedulerType
            Seq2SeqTrainer Seq2SeqTrainingArguments Trainer TrainerCallback TrainerControl TrainerState
            TrainingArguments enable_full_determinism set_seed""",
        "transformers.data.data_collator": f"""{_COLLATORS} DataCollatorMixin numpy_default_data_collator
            torch_default_data_collator""",
        "transformers.debug_utils": "DebugOption",
        "transformers.hyperparameter_search": f"""{_BACKENDS} ALL_HYPERPARAMETER_SEARCH_BACKENDS HPSearchBackend
            {_DEFAULT_SPACES} default_hp_search_backend {_SEARCHES}""",
        "transformers.hf_argparser": "HfArg HfArgumentParser make_choice_type_function string_to_bool",
        "transformers.integrations.integration_utils": f"""{_SEARCHES} BestRun ClearMLCallback CodeCarbonCallback
            CometCallback DVCLiveCallback INTEGRATION_TO_CALLBACK IntervalStrategy MLflowCallback NeptuneCallback
            PREFIX_CHECKPOINT_DIR ParallelMode ProgressCallback SwanLabCallback TensorBoardCallback TrackioCallback
            TrainerCallback TrainingArguments WandbCallback get_available_reporting_integrations
            get_reporting_integration_callbacks rewrite_logs""",
        "transformers.optimization": f"""Adafactor AdafactorSchedule GreedyLR SchedulerType StreamingAverage
            TYPE_TO_SCHEDULER_FUNCTION {_SCHEDULES} get_adafactor_schedule""",
        "transformers.trainer": f"""Trainer {_CALLBACKS} {_RESULTS} {_NESTED}
            ALL_HYPERPARAMETER_SEARCH_BACKENDS DEFAULT_CALLBACKS DEFAULT_PROGRESS_CALLBACK
            DataCollator DataCollatorWithPadding DebugOption GreedyLR LabelSmoother
            LengthGroupedSampler OptimizerNames ParallelMode TRAINER_STATE_NAME
            TRAINING_ARGS_NAME TrainingArguments default_compute_objective default_data_collator
            default_hp_search_backend get_parameter_names
            get_reporting_integration_callbacks get_scheduler""",
        "transformers.trainer_callback": f"""{_CALLBACKS} EarlyStoppingCallback IntervalStrategy SaveStrategy
            TrainingArguments has_length""",
        "transformers.trainer_pt_utils": f"""{_NESTED} AcceleratorConfig DistributedLengthGroupedSampler LabelSmoother
            LengthGroupedSampler ShardSampler distributed_concat get_length_grouped_indices get_parameter_names
            metrics_format nested_concat nested_new_like nested_numpify nested_truncate""",
        "transformers.trainer_seq2seq": "Seq2SeqTrainer Trainer",
        "transformers.trainer_utils": f"""{_RESULTS} default_compute_objective {_DEFAULT_SPACES} FSDPOption
            IntervalStrategy SchedulerType is_main_process total_processes_number""",
        "transformers.training_args": """AcceleratorConfig DebugOption FSDPOption HubStrategy IntervalStrategy
            OptimizerNames ParallelMode SaveStrategy SchedulerType TrainingArguments""",
        "transformers.training_args_seq2seq": "Seq2SeqTrainingArguments TrainingArguments",
        "transformers.utils.hp_naming": "TrialShortNamer",
    }.items()
}

# Constants, so that reading one does not load transformers' trainer. They name the files of its layout, since code
# that uses them writes or reads such a file with torch. (`checkpoint_layout="transformers"` makes the trainer do so.)
VALUES: dict[str, dict[str, Any]] = {
    "transformers.trainer": {
        "OPTIMIZER_NAME": "optimizer.pt",
        "SCALER_NAME": "scaler.pt",
        "SCHEDULER_NAME": "scheduler.pt",
    },
}

# Names that scripts for transformers 4 import, and that neither transformers 5 nor Ostinato has.
_USE_TORCH_NORMS = "use torch.nn.LayerNorm, or trainer.get_decay_parameter_names(model)"
REMOVED: dict[str, dict[str, str]] = {
    "transformers": {"AdamW": "use torch.optim.AdamW"},
    "transformers.optimization": {"AdamW": "use torch.optim.AdamW"},
    "transformers.trainer": {"ALL_LAYERNORM_LAYERS": _USE_TORCH_NORMS},
    "transformers.trainer_pt_utils": {
        "DistributedTensorGatherer": "use trainer.predict, which gathers every row once, in order, from all processes",
        "SequentialDistributedSampler": "use trainer.get_eval_dataloader, which shards rows among processes",
        "smp_forward_backward": "SageMaker's model parallelism is not supported: train with torchrun",
    },
    "transformers.trainer_utils": {"ShardedDDPOption": "sharding by fairscale was removed: see the argument fsdp"},
}


def load_own(name: str) -> Any:
    """Import and return the object that replaces a name of transformers; the package offers it under the same name.

    >>> load_own("set_seed").__module__
    'ostinato.core.random'
    """
    return getattr(_get_root(), name)


def get_module_name(name: str) -> str:
    """Return the module of Ostinato's object, such as `ostinato.trainer`."""
    root = _get_root()
    return f"{root.__name__}.{root._MODULE_OF[name]}"


def _get_root() -> Any:
    return import_module(__name__.partition(".")[0])


def list_rows() -> Iterator[tuple[str, str, str]]:
    """Yield every row of the map: the module of transformers, the name, and its replacement."""
    for module, names in MODULES.items():
        for name in sorted(names):
            yield module, name, get_module_name(name)
        for name, value in VALUES.get(module, {}).items():
            yield module, name, repr(value)
        for name, instead in REMOVED.get(module, {}).items():
            yield module, name, f"removed: {instead}"
