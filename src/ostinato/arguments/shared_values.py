"""The arguments that all processes of a run must have alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.errors import ConfigError
from ..core.phrases import join_names
from .extras import list_declarations

if TYPE_CHECKING:
    from .training_args import TrainingArguments

_MAX_LENGTH = 60
# What a process does on its own: where and what it writes, prints and uploads, and how it reads its rows.
_OWN = {
    *("output_dir", "local_rank", "use_cpu", "tf32", "ddp_timeout", "resume_from_checkpoint"),
    *("do_train", "do_eval", "do_predict", "debug", "skip_memory_metrics", "peak_flops", "journal", "write_report"),
    *("log_level", "log_level_replica", "log_on_each_node", "disable_tqdm", "report_to", "run_name", "project"),
    *("trackio_space_id", "trackio_bucket_id", "trackio_static_space_id", "eval_memory_mb", "save_errors"),
    *("push_to_hub", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy", "hub_always_push"),
    *("hub_revision", "dataloader_num_workers", "dataloader_in_order", "dataloader_pin_memory"),
    *("dataloader_persistent_workers", "dataloader_prefetch_factor", "dataloader_multiprocessing_context"),
    *("torch_empty_cache_steps", "torch_compile_backend", "torch_compile_mode"),
}


def list_shared_values(args: TrainingArguments) -> dict[str, str]:
    """Return the arguments that decide about steps, rows and exchanges, as text.

    >>> list_shared_values(TrainingArguments("out"))["gradient_accumulation_steps"]  # doctest: +SKIP
    '1'
    """
    values = args.to_dict()
    return {name: repr(values[name]) for name in list_declarations(args) if name in values and name not in _OWN}


def check_equal(facts: Sequence[Mapping[str, str]]) -> None:
    """Raise if the processes do not agree on facts that all of them have; they are in the order of the ranks."""
    names = [name for name in facts[0] if all(name in one for one in facts)]
    different = [name for name in names if len({one[name] for one in facts}) > 1]
    if different:
        raise ConfigError(
            what=f"the processes of this run do not have the same {', '.join(different)}",
            why="; ".join(f"{name} is {_tell_values([one[name] for one in facts])}" for name in different)
            + ". They would wait for one another without end, or train on other rows than they should",
            fix="start all of them with the same script, command line, data and packages",
        )


def _tell_values(values: Sequence[str]) -> str:
    """Return who has which value.

    >>> _tell_values(["3", "3", "4"])
    '3 in processes 0 and 1, 4 in process 2'
    """
    ranks: dict[str, list[str]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(value, []).append(str(rank))
    return ", ".join(f"{_cut(value)} in {_name_processes(having)}" for value, having in ranks.items())


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."


def _name_processes(ranks: Sequence[str]) -> str:
    if len(ranks) == 1:
        return f"process {ranks[0]}"
    if len(ranks) > 4:
        return f"{len(ranks)} processes"
    return f"processes {join_names(ranks[:-1])} and {ranks[-1]}"
