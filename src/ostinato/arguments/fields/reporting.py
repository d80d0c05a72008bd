"""Arguments for logging and experiment trackers, and those that only scripts read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...core.choices import DebugOption, IntervalStrategy
from ..argument import Range, argument

LOG_LEVELS = ("detail", "debug", "info", "warning", "error", "critical", "passive")


@dataclass
class LoggingArguments:
    """What is logged, when, and to which trackers."""

    logging_strategy: IntervalStrategy | str = argument(
        "steps",
        help="Log never (no), every logging_steps (steps) or after each epoch (epoch).",
        choices=IntervalStrategy,
        on_resume=None,
    )
    logging_steps: float = argument(
        500,
        help="Steps between two logs. Below 1: a fraction of all steps.",
        number=Range(finite=True),
        allow_none=True,
        on_resume=None,
    )
    logging_first_step: bool = argument(False, help="Also log the first step.", on_resume=None)
    log_on_each_node: bool = argument(
        True, help="On several machines, log from one process of each, instead of from one of all.", on_resume=None
    )
    logging_nan_inf_filter: bool = argument(
        True, help="Exclude NaN and infinite losses from the logged mean. Gradients are not affected.", on_resume=None
    )
    include_num_input_tokens_seen: str | bool = argument(
        "no", help="Count the input tokens trained on: all, non_padding, or no. True means all.", on_resume=None
    )
    log_level: str = argument(
        "passive",
        help="Log level of the main process of a machine. passive: the level is not changed.",
        choices=LOG_LEVELS,
        on_resume=None,
    )
    log_level_replica: str = argument(
        "warning", help="Log level of every other process.", choices=LOG_LEVELS, on_resume=None
    )
    disable_tqdm: bool | None = argument(
        None,
        help="Print plain lines instead of progress bars. Default: bars, unless the log level is above warning.",
        on_resume=None,
    )
    report_to: None | str | list[str] = argument(  # noqa: RUF036 - transformers' parser fails where None comes last
        "none", help="Experiment trackers that receive the logs: names, all (those installed) or none.", on_resume=None
    )
    run_name: str | None = argument(None, help="Name of this run in trackers.", on_resume=None)
    project: str = argument("huggingface", help="Trackio project to which this run belongs.", on_resume=None)
    trackio_space_id: str | None = argument(
        None, help="Hub Space to which Trackio sends logs. Default: logs stay local.", on_resume=None
    )
    trackio_bucket_id: str | None = argument(None, help="Hub bucket in which Trackio stores its data.", on_resume=None)
    trackio_static_space_id: str | None | Literal[False] = argument(  # noqa: RUF036 - see report_to
        None, help="Read-only Space that Trackio publishes at the end. False: none.", on_resume=None
    )


@dataclass
class ScriptArguments:
    """Arguments for scripts; most of them have no effect on the trainer."""

    debug: str | list[DebugOption] = argument(
        "",
        help="Debugging tools, separated by spaces: underflow_overflow, which names the first module whose weights, "
        "inputs or outputs are not finite. It slows training down.",
        on_resume=None,
    )
    skip_memory_metrics: bool = argument(
        True, help="Do not add memory use to the metrics. Measuring it takes time.", on_resume=None
    )
    do_train: bool = argument(False, help="For scripts: whether to train.", on_resume=None)
    do_eval: bool = argument(
        False, help="For scripts: whether to evaluate. Set by any eval_strategy other than no.", on_resume=None
    )
    do_predict: bool = argument(False, help="For scripts: whether to predict the test set.", on_resume=None)
    resume_from_checkpoint: str | None = argument(
        None, help="For scripts: the checkpoint directory to resume from.", on_resume=None
    )
    local_rank: int = argument(
        -1, help="Accepted for old launchers: the rank of a process is read from its environment.", on_resume=None
    )
