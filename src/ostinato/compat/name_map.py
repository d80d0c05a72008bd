"""Map from names of transformers to Ostinato's, which `ostinato exec` and `import ostinato.dropin` install.

A name that is in no list_rows stays transformers' own: models, tokenizers and pipelines, but also the helpers of its
trainer that only compute (`nested_detach`, `find_executable_batch_size`, `TrainerMemoryTracker`) or that query the
machine (`is_deepspeed_zero3_enabled`, which returns False). Tracker callbacks that Ostinato does not have stay
transformers' own too (`CodeCarbonCallback`); they then derive from Ostinato's `TrainerCallback`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

PACKAGE = "transformers"

# Where Ostinato's names are, as "module:name" below the package. The name may be left out if it is the same.
_OWN = {
    "AcceleratorConfig": "arguments.accelerator_config",
    "Adafactor": "optim.adafactor",
    "AdafactorSchedule": "optim.adafactor",
    "BestRun": "core.outputs",
    "CallbackHandler": "callbacks.handler",
    "ClearMLCallback": "trackers.clearml",
    "CometCallback": "trackers.comet",
    "DVCLiveCallback": "trackers.dvclive",
    "DataCollator": "data.collators.default",
    "DataCollatorForLanguageModeling": "data.collators.language_modeling",
    "DataCollatorForMultipleChoice": "data.collators.choice_rows",
    "DataCollatorForPermutationLanguageModeling": "data.collators.permutation",
    "DataCollatorForSeq2Seq": "data.collators.sequence_pairs",
    "DataCollatorForTokenClassification": "data.collators.token_labels",
    "DataCollatorMixin": "data.collators.token_rows",
    "DataCollatorWithFlattening": "data.collators.flattening",
    "DataCollatorWithPadding": "data.collators.padding",
    "DebugOption": "core.choices",
    "DefaultDataCollator": "data.collators.default",
    "DefaultFlowCallback": "callbacks.flow",
    "EarlyStoppingCallback": "callbacks.early_stopping",
    "EvalLoopOutput": "core.outputs",
    "EvalPrediction": "core.outputs",
    "ExportableState": "core.state",
    "FSDPOption": "core.choices",
    "GreedyLR": "optim.greedy",
    "HPSearchBackend": "core.choices",
    "HfArg": "arguments.parser",
    "HfArgumentParser": "arguments.parser",
    "HubStrategy": "core.choices",
    "INTEGRATION_TO_CALLBACK": "trackers",
    "IntervalStrategy": "core.choices",
    "LabelSmoother": "loss.smoothing",
    "LengthGroupedSampler": "data.samplers.epoch_sampler",
    "MLflowCallback": "trackers.mlflow",
    "NeptuneCallback": "trackers.neptune",
    "OptimizerNames": "core.choices",
    "PREFIX_CHECKPOINT_DIR": "checkpoint.file_names",
    "ParallelMode": "core.choices",
    "PredictionOutput": "core.outputs",
    "PrinterCallback": "progress.plain",
    "ProgressCallback": "progress.callback",
    "RemoveColumnsCollator": "data.columns",
    "SaveStrategy": "core.choices",
    "SchedulerType": "core.choices",
    "Seq2SeqTrainer": "seq2seq_trainer",
    "Seq2SeqTrainingArguments": "arguments.seq2seq_args",
    "StreamingAverage": "optim.greedy",
    "SwanLabCallback": "trackers.swanlab",
    "TRAINER_STATE_NAME": "checkpoint.file_names",
    "TRAINING_ARGS_NAME": "checkpoint.file_names",
    "TensorBoardCallback": "trackers.tensorboard",
    "TrackioCallback": "trackers.trackio",
    "TrainOutput": "core.outputs",
    "Trainer": "trainer",
    "TrainerCallback": "callbacks.events",
    "TrainerControl": "core.state",
    "TrainerState": "core.state",
    "TrainingArguments": "arguments.training_args",
    "WandbCallback": "trackers.wandb",
    "default_data_collator": "data.collators.default",
    "enable_full_determinism": "core.random",
    "get_adafactor_schedule": "optim.adafactor",
    "get_available_reporting_integrations": "trackers",
    "get_constant_schedule": "optim.schedulers",
    "get_constant_schedule_with_warmup": "optim.schedulers",
    "get_cosine_schedule_with_warmup": "optim.schedulers",
    "get_cosine_with_hard_restarts_schedule_with_warmup": "optim.schedulers",
    "get_cosine_with_min_lr_schedule_with_warmup": "optim.schedulers",
    "get_cosine_with_min_lr_schedule_with_warmup_lr_rate": "optim.schedulers",
    "get_greedy_schedule": "optim.greedy",
    "get_inverse_sqrt_schedule": "optim.schedulers",
    "get_last_checkpoint": "checkpoint.retention",
    "get_length_grouped_indices": "data.samplers.epoch_sampler",
    "get_linear_schedule_with_warmup": "optim.schedulers",
    "get_parameter_names": "optim.groups",
    "get_polynomial_decay_schedule_with_warmup": "optim.schedulers",
    "get_reduce_on_plateau_schedule": "optim.schedulers",
    "get_reporting_integration_callbacks": "trackers",
    "get_scheduler": "optim.schedulers",
    "get_wsd_schedule": "optim.schedulers",
    "has_length": "core.tree",
    "make_choice_type_function": "arguments.parser_types",
    "rewrite_logs": "trackers.base",
    "seed_worker": "data.loader",
    "set_seed": "core.random",
    "sort_checkpoints": "checkpoint.retention",
    "string_to_bool": "arguments.parser_types",
}

_CALLBACKS = """CallbackHandler DefaultFlowCallback ExportableState PrinterCallback ProgressCallback TrainerCallback
    TrainerControl TrainerState"""
_COLLATORS = """DataCollator DataCollatorForLanguageModeling DataCollatorForMultipleChoice
    DataCollatorForPermutationLanguageModeling DataCollatorForSeq2Seq DataCollatorForTokenClassification
    DataCollatorWithFlattening DataCollatorWithPadding DefaultDataCollator default_data_collator"""
_SCHEDULES = """get_constant_schedule get_constant_schedule_with_warmup get_cosine_schedule_with_warmup
    get_cosine_with_hard_restarts_schedule_with_warmup get_cosine_with_min_lr_schedule_with_warmup
    get_inverse_sqrt_schedule get_linear_schedule_with_warmup get_polynomial_decay_schedule_with_warmup
    get_reduce_on_plateau_schedule get_scheduler get_wsd_schedule"""
_RESULTS = """BestRun EvalLoopOutput EvalPrediction HPSearchBackend HubStrategy PREFIX_CHECKPOINT_DIR PredictionOutput
    RemoveColumnsCollator SaveStrategy TrainOutput enable_full_determinism get_last_checkpoint has_length seed_worker
    set_seed sort_checkpoints"""

# Every module of transformers that a name of its trainer can be imported from, and the names replaced there.
MODULES: dict[str, tuple[str, ...]] = {
    module: tuple(names.split())
    for module, names in {
        "transformers": f"""Adafactor {_COLLATORS} {_SCHEDULES} DefaultFlowCallback EarlyStoppingCallback
            EvalPrediction HfArgumentParser IntervalStrategy PrinterCallback ProgressCallback SchedulerType
            Seq2SeqTrainer Seq2SeqTrainingArguments Trainer TrainerCallback TrainerControl TrainerState
            TrainingArguments enable_full_determinism set_seed""",
        "transformers.data.data_collator": f"{_COLLATORS} DataCollatorMixin",
        "transformers.debug_utils": "DebugOption",
        "transformers.hf_argparser": "HfArg HfArgumentParser make_choice_type_function string_to_bool",
        "transformers.integrations.integration_utils": """BestRun ClearMLCallback CometCallback DVCLiveCallback
            INTEGRATION_TO_CALLBACK IntervalStrategy MLflowCallback NeptuneCallback PREFIX_CHECKPOINT_DIR ParallelMode
            ProgressCallback SwanLabCallback TensorBoardCallback TrackioCallback TrainerCallback TrainingArguments
            WandbCallback get_available_reporting_integrations get_reporting_integration_callbacks rewrite_logs""",
        "transformers.optimization": f"""Adafactor AdafactorSchedule GreedyLR SchedulerType StreamingAverage
            {_SCHEDULES} get_adafactor_schedule get_cosine_with_min_lr_schedule_with_warmup_lr_rate
            get_greedy_schedule""",
        "transformers.trainer": f"""Trainer {_CALLBACKS} {_RESULTS} DataCollator DataCollatorWithPadding DebugOption
            GreedyLR LabelSmoother LengthGroupedSampler OptimizerNames ParallelMode TRAINER_STATE_NAME
            TRAINING_ARGS_NAME TrainingArguments default_data_collator get_parameter_names
            get_reporting_integration_callbacks get_scheduler""",
        "transformers.trainer_callback": f"""{_CALLBACKS} EarlyStoppingCallback IntervalStrategy SaveStrategy
            TrainingArguments has_length""",
        "transformers.trainer_pt_utils": """AcceleratorConfig LabelSmoother LengthGroupedSampler
            get_length_grouped_indices get_parameter_names""",
        "transformers.trainer_seq2seq": "Seq2SeqTrainer Trainer",
        "transformers.trainer_utils": f"{_RESULTS} FSDPOption IntervalStrategy SchedulerType",
        "transformers.training_args": """AcceleratorConfig DebugOption FSDPOption HubStrategy IntervalStrategy
            OptimizerNames ParallelMode SaveStrategy SchedulerType TrainingArguments""",
        "transformers.training_args_seq2seq": "Seq2SeqTrainingArguments TrainingArguments",
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
    """Import and return the object that replaces a name of transformers.

    >>> load_own("set_seed").__module__
    'ostinato.core.random'
    """
    root = __name__.split(".")[0]
    home = _OWN[name]
    if home.startswith("arguments."):
        # Arguments have `main_process_first`: the module that owns the process group has to be loaded first.
        import_module(f"{root}.strategies.process_group")
    return getattr(import_module(f"{root}.{home}"), name)


def get_module_name(name: str) -> str:
    """Return the module of Ostinato's object, such as `ostinato.trainer`."""
    return f"{__name__.split('.')[0]}.{_OWN[name]}"


def list_rows() -> Iterator[tuple[str, str, str]]:
    """Yield every row of the map: the module of transformers, the name, and its replacement."""
    for module, names in MODULES.items():
        for name in sorted(names):
            yield module, name, get_module_name(name)
        for name, value in VALUES.get(module, {}).items():
            yield module, name, repr(value)
        for name, instead in REMOVED.get(module, {}).items():
            yield module, name, f"removed: {instead}"
