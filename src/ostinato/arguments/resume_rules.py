"""What a changed argument means when a run is resumed: the values of `on_resume=` in the declarations of arguments.

A checkpoint holds an optimizer and a schedule with the values they were made with, and these are restored; everything
else is made from the present arguments. An argument without a rule changes no number (directories, logs, how often is
evaluated or saved, memory).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.choices import SchedulerType

_MAX_LENGTH = 32  # characters of a value in a message

_METRIC_DRIVEN = {SchedulerType.REDUCE_ON_PLATEAU.value, SchedulerType.GREEDY.value}
_ENDLESS = {
    SchedulerType.CONSTANT.value,
    SchedulerType.CONSTANT_WITH_WARMUP.value,
    SchedulerType.INVERSE_SQRT.value,
    *_METRIC_DRIVEN,
}
_WITHOUT_WARMUP = {SchedulerType.CONSTANT.value, *_METRIC_DRIVEN}


@dataclass(frozen=True)
class ResumeContext:
    """The facts, besides the arguments, on which the meaning of a change depends."""

    steps_before: int  # planned when the checkpoint was written
    steps_now: int
    processes: int = 1
    own_optimizer: bool = False  # passed to the Trainer, so that no argument decides about it
    own_schedule: bool = False
    is_stream: bool = False  # the training set can only be iterated over
    own_order: bool = False  # a sampler or a batch sampler was passed to the Trainer
    best: float | None = None  # the best metric so far


@dataclass(frozen=True)
class ChangedArgument:
    """An argument whose value differs from the checkpoint's, with all arguments of then and now."""

    name: str
    before: Mapping[str, Any]
    now: Mapping[str, Any]
    context: ResumeContext

    @property
    def present(self) -> str:
        """Return the beginning of a text that says that the present value is used."""
        return f"now {shorten(self.now[self.name])}"

    @property
    def kept(self) -> str:
        """Return the beginning of a text that says that the checkpoint's value is used."""
        return f"the checkpoint's {shorten(self.before[self.name])} stays"

    @property
    def schedule(self) -> str:
        """Return the name of the present learning rate schedule."""
        kind = self.now.get("lr_scheduler_type")
        return str(getattr(kind, "value", kind))

    @property
    def changes_data_seed(self) -> bool:
        """Return whether the seed of the order of rows, and of what is random in them, is another one."""
        return _get_data_seed(self.before) != _get_data_seed(self.now)


@dataclass(frozen=True)
class Outcome:
    """Which of the two values is used, and what follows."""

    text: str
    same_numbers: bool | None  # whether the run stays bit for bit the same; None: it depends on the data
    reorders: bool = False  # whether the rest of the epoch comes in another order


ResumeRule = Callable[[ChangedArgument], Outcome | None]  # None: the change has no effect in this run


def shorten(value: Any) -> str:
    """Return the `repr` of a value, cut to a length that fits into a table."""
    text = repr(value)
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."


# --- rules for any argument ------------------------------------------------------------------------------------------


def change_numbers(change: ChangedArgument) -> Outcome:
    """Use the new value; the numbers differ from here on."""
    return Outcome(f"{change.present}: other numbers from here on", False)


def keep_numbers(change: ChangedArgument) -> Outcome:
    """Use the new value, which changes no number."""
    return Outcome(f"{change.present}: the same numbers", True)


def change_order(change: ChangedArgument) -> Outcome:
    """Use the new value; the rest of the epoch comes in another order."""
    text = "another order: rows of the epoch that is resumed may be seen twice or not at all"
    return Outcome(f"{change.present}, and so {text}", False, reorders=True)


def change_random_rows(change: ChangedArgument) -> Outcome:
    """Use the new value, which matters only to rows that are read at random."""
    return Outcome(f"{change.present}: the same numbers unless rows are read at random", None)


def change_on_accelerators(change: ChangedArgument) -> Outcome:
    """Use the new value, which matters only on accelerators."""
    return Outcome(f"{change.present}: other numbers where there is an accelerator", None)


def change_across_processes(change: ChangedArgument) -> Outcome | None:
    """Use the new value, which matters only with several processes."""
    return None if change.context.processes == 1 else change_numbers(change)


# --- optimizer and schedule ------------------------------------------------------------------------------------------


def keep_optimizer(change: ChangedArgument) -> Outcome | None:
    """Keep the checkpoint's value, which is part of the optimizer."""
    if change.context.own_optimizer:
        return None
    return Outcome(f"{change.kept}, as part of the optimizer; to change it, fork", True)


def keep_learning_rate(change: ChangedArgument) -> Outcome | None:
    """Keep the checkpoint's value; some schedules compute their end from the new one."""
    if change.context.own_optimizer:
        return None
    options = change.now.get("lr_scheduler_kwargs") or {}
    has_final_rate = change.schedule == SchedulerType.POLYNOMIAL.value or options.get("min_lr") is not None
    if has_final_rate and not change.context.own_schedule:
        return Outcome(
            f"{change.kept}, but the end of the {change.schedule} schedule is computed from the present one", False
        )
    return Outcome(f"{change.kept}, as part of optimizer and schedule; to change it, fork", True)


def change_schedule(change: ChangedArgument) -> Outcome | None:
    """Use the new value, which changes the learning rates."""
    if change.context.own_schedule:
        return None
    return Outcome(f"{change.present}: other learning rates", False)


def change_schedule_options(change: ChangedArgument) -> Outcome | None:
    """Use the new options, except in schedules whose state is part of the checkpoint."""
    if change.schedule in _METRIC_DRIVEN and not change.context.own_schedule:
        return Outcome(f"{change.kept}, as part of the schedule; to change it, fork", True)
    return change_schedule(change)


def change_warmup(change: ChangedArgument) -> Outcome | None:
    """Use the new value in schedules with warmup."""
    return None if change.schedule in _WITHOUT_WARMUP else change_schedule(change)


def change_steps(change: ChangedArgument) -> Outcome | None:
    """Use the new length of the run, on which most schedules depend."""
    context = change.context
    if context.steps_before == context.steps_now:
        return None
    text = f"the run ends at step {context.steps_now}, not {context.steps_before}"
    warmup = change.now.get("warmup_steps") or 0
    has_relative_warmup = 0 < warmup < 1 and change.schedule not in _WITHOUT_WARMUP
    if context.own_schedule or (change.schedule in _ENDLESS and not has_relative_warmup):
        return Outcome(text, True)
    return Outcome(f"{text}, and the {change.schedule} schedule with it", False)


def change_epochs(change: ChangedArgument) -> Outcome | None:
    """Use the new length of the run, unless max_steps decides about it."""
    return None if (change.now.get("max_steps") or 0) > 0 else change_steps(change)


# --- rows and batches ------------------------------------------------------------------------------------------------


def change_batch_size(change: ChangedArgument) -> Outcome | None:
    """Use the new value, unless batches are limited by tokens."""
    return None if change.now.get("max_tokens_per_batch") else change_numbers(change)


def change_token_budget(change: ChangedArgument) -> Outcome:
    """Use the new value; the order changes unless both runs limit batches by tokens."""
    return change_numbers(change) if _uses_token_budget(change) else change_order(change)


def change_length_window(change: ChangedArgument) -> Outcome | None:
    """Use the new value where rows are grouped by length."""
    if _uses_token_budget(change):
        return change_numbers(change)  # the rest of the epoch is divided into batches again; no row is lost
    return change_lengths(change)


def change_lengths(change: ChangedArgument) -> Outcome | None:
    """Use the new value where rows are grouped by length, in another order."""
    return change_order(change) if change.now.get("train_sampling_strategy") == "group_by_length" else None


def change_last_batch(change: ChangedArgument) -> Outcome:
    """Use the new value, which matters only to batches that are not full."""
    return Outcome(f"{change.present}: the same numbers if the last batch of an epoch is full", None)


def change_columns(change: ChangedArgument) -> Outcome:
    """Use the new value, which matters only if the model gets other columns."""
    return Outcome(f"{change.present}: the same numbers if the model gets the same columns", None)


def change_workers(change: ChangedArgument) -> Outcome:
    """Use the new value, which matters to streams and to rows that are read at random."""
    if change.context.is_stream:
        return Outcome(f"{change.present}: the stream divides its rows among workers in another way", False)
    return keep_numbers(change) if change.now.get("isolate_rng") else change_random_rows(change)


def change_data_seed(change: ChangedArgument) -> Outcome:
    """Use the new seed, which decides about the order of rows."""
    if not change.changes_data_seed:
        return keep_numbers(change)
    if change.context.is_stream or change.context.own_order or not _order_follows_seed(change):
        return change_random_rows(change)
    return change_order(change)


def change_seed(change: ChangedArgument) -> Outcome:
    """Use the new seed for the data only: the random streams are part of the checkpoint."""
    if change.changes_data_seed:
        return change_data_seed(change)
    return Outcome(f"{change.kept}, as random streams are part of the checkpoint", True)


def change_rng_isolation(change: ChangedArgument) -> Outcome:
    """Use the new value, which matters where something besides training draws at random."""
    text = f"{change.present}: other numbers where rows, evaluations or callbacks draw at random"
    return Outcome(text, False)


# --- evaluation ------------------------------------------------------------------------------------------------------


def change_best_metric(change: ChangedArgument) -> Outcome | None:
    """Use the new value; the best metric so far was found with the other."""
    best = change.context.best
    if best is None:
        return None
    return Outcome(f"{change.present}; the best so far, {best:.4g}, was found with the other and still stands", True)


def change_evaluations(change: ChangedArgument) -> Outcome | None:
    """Use the new value, which matters to schedules that depend on evaluations."""
    if change.schedule not in _METRIC_DRIVEN or change.context.own_schedule:
        return None
    return Outcome(f"{change.present}: the {change.schedule} schedule depends on evaluations", False)


def _get_data_seed(arguments: Mapping[str, Any]) -> Any:
    seed = arguments.get("data_seed")
    return arguments.get("seed") if seed is None else seed


def _uses_token_budget(change: ChangedArgument) -> bool:
    return bool(change.before.get("max_tokens_per_batch") and change.now.get("max_tokens_per_batch"))


def _order_follows_seed(change: ChangedArgument) -> bool:
    now = change.now
    strategy = now.get("train_sampling_strategy")
    if strategy == "group_by_length" and not now.get("length_window") and not now.get("max_tokens_per_batch"):
        return change.context.processes > 1  # else it is drawn from the streams, which are part of the checkpoint
    return strategy != "sequential"
