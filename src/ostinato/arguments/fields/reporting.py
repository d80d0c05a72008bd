"""Arguments for logging and experiment trackers, and those that only scripts read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...core.choices import DebugOption, IntervalStrategy

LOG_LEVELS = ("detail", "debug", "info", "warning", "error", "critical", "passive")


@dataclass
class LoggingArguments:
    """What is written down about a run, when, and where it is sent."""

    logging_strategy: IntervalStrategy | str = field(
        default="steps", metadata={"help": "Log never (no), every logging_steps (steps) or after each epoch (epoch)."}
    )
    logging_steps: float = field(
        default=500, metadata={"help": "Steps between two log lines. Below 1 it is a share of all steps."}
    )
    logging_first_step: bool = field(default=False, metadata={"help": "Also log the very first step."})
    log_on_each_node: bool = field(
        default=True, metadata={"help": "On several machines, let one process of each log, not just one of all."}
    )
    logging_nan_inf_filter: bool = field(
        default=True,
        metadata={"help": "Leave NaN and infinite losses out of the logged mean; changes nothing else."},
    )
    include_num_input_tokens_seen: str | bool = field(
        default="no",
        metadata={"help": "Count the input tokens trained on: all, non_padding, or no. True means all."},
    )
    log_level: str = field(
        default="passive",
        metadata={
            "help": "How much the main process of a machine says; passive leaves the level as it is.",
            "choices": LOG_LEVELS,
        },
    )
    log_level_replica: str = field(
        default="warning",
        metadata={"help": "How much every other process says.", "choices": LOG_LEVELS},
    )
    disable_tqdm: bool | None = field(
        default=None, metadata={"help": "Print plain lines in place of progress bars. Not given: bars, unless quiet."}
    )
    report_to: None | str | list[str] = field(  # noqa: RUF036 - transformers' parser fails where None comes last
        default="none",
        metadata={"help": "The experiment trackers that receive the logs: names, all (that are installed) or none."},
    )
    run_name: str | None = field(default=None, metadata={"help": "What trackers call this run."})
    project: str = field(default="huggingface", metadata={"help": "The project under which Trackio files this run."})
    trackio_space_id: str | None = field(
        default=None, metadata={"help": "The hub Space to which Trackio sends logs; not given, they stay local."}
    )
    trackio_bucket_id: str | None = field(
        default=None, metadata={"help": "The hub bucket in which Trackio keeps its data."}
    )
    trackio_static_space_id: str | None | Literal[False] = field(  # noqa: RUF036 - see report_to
        default=None, metadata={"help": "The read-only Space Trackio publishes at the end; False publishes none."}
    )


@dataclass
class ScriptArguments:
    """What scripts ask of themselves; the trainer reads little of it."""

    debug: str | list[DebugOption] = field(
        default="", metadata={"help": "Tools for hunting errors, separated by spaces: underflow_overflow."}
    )
    skip_memory_metrics: bool = field(
        default=True, metadata={"help": "Do not add memory use to the metrics; measuring it costs time."}
    )
    do_train: bool = field(default=False, metadata={"help": "For scripts: whether to train."})
    do_eval: bool = field(
        default=False, metadata={"help": "For scripts: whether to evaluate. Switched on by any eval_strategy but no."}
    )
    do_predict: bool = field(default=False, metadata={"help": "For scripts: whether to predict the test set."})
    resume_from_checkpoint: str | None = field(
        default=None, metadata={"help": "For scripts: the checkpoint directory to continue from."}
    )
    local_rank: int = field(
        default=-1, metadata={"help": "Kept for old launchers; the place of a process comes from its environment."}
    )
