"""Resuming with other arguments: what changed, which of the two values holds, and whether the numbers stay the same.

A checkpoint holds an optimizer and a schedule with what they were made with, and these are put back as they were;
whatever else training needs is made from the arguments of now. Arguments that change no number (directories, logs, how
often is evaluated or saved, memory) are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.choices import SchedulerType

_SHORT = 32  # characters of a value in the table

_METRIC_DRIVEN = {SchedulerType.REDUCE_ON_PLATEAU.value, SchedulerType.GREEDY.value}
_ENDLESS = {
    SchedulerType.CONSTANT.value,
    SchedulerType.CONSTANT_WITH_WARMUP.value,
    SchedulerType.INVERSE_SQRT.value,
    *_METRIC_DRIVEN,
}
_WITHOUT_WARMUP = {SchedulerType.CONSTANT.value, *_METRIC_DRIVEN}

OTHER_ORDER = "another order: rows of the epoch that is resumed may be seen twice or not at all"


@dataclass(frozen=True)
class Circumstances:
    """What a change means depends on these."""

    steps_before: int  # that the run was planned for
    steps_now: int
    processes: int = 1
    own_optimizer: bool = False  # given to the Trainer, so that no argument decides about it
    own_schedule: bool = False
    is_stream: bool = False  # the training set can only be iterated over
    own_order: bool = False  # a sampler was given to the Trainer, or batches
    best: float | None = None  # the best metric so far


@dataclass(frozen=True)
class Change:
    """One argument that is not what it was."""

    name: str
    before: Any
    now: Any
    outcome: str  # which of the two holds, and what follows
    same_numbers: bool | None  # whether the run stays bit for bit the same; None: it depends on the data

    @property
    def reorders(self) -> bool:
        """Whether the rows of the epoch that is resumed come in another order."""
        return self.outcome.endswith(OTHER_ORDER)


def find_changes(before: Mapping[str, Any], now: Mapping[str, Any], case: Circumstances) -> list[Change]:
    """Every argument that is other than in the checkpoint and matters to the numbers.

    Both are arguments as plain data (`TrainingArguments.to_dict`); one that the checkpoint does not know is left out.

    >>> case = Circumstances(steps_before=8, steps_now=8)
    >>> [change.outcome for change in find_changes({"max_grad_norm": 1.0}, {"max_grad_norm": 0.5}, case)]
    ['now 0.5: other numbers from here on']
    """
    found = []
    for name, rule in _RULES.items():
        if name not in before or name not in now or before[name] == now[name]:
            continue
        ruling = rule(_Pair(name, before, now, case))
        if ruling is not None:
            found.append(Change(name, before[name], now[name], *ruling))
    return found


def in_a_table(changes: Sequence[Change]) -> list[str]:
    """The changes as aligned lines.

    >>> in_a_table([Change("max_grad_norm", 1.0, 0.5, "now 0.5: other numbers from here on", False)])
    ['max_grad_norm  1.0 → 0.5  now 0.5: other numbers from here on']
    """
    rows = [(one.name, f"{_short(one.before)} → {_short(one.now)}", one.outcome) for one in changes]
    name, values = (max((len(row[column]) for row in rows), default=0) for column in range(2))
    return [f"{row[0]:{name}}  {row[1]:{values}}  {row[2]}" for row in rows]


def conclusion(changes: Sequence[Change]) -> list[str]:
    """A line if the run cannot be the same any more."""
    different = [one.name for one in changes if one.same_numbers is False]
    if not different:
        return []
    return [f"from here on this cannot be bit for bit the run as it was: {', '.join(different)}"]


# ---- what becomes of each ------------------------------------------------------------------------------------------

_Ruling = tuple[str, bool | None] | None  # outcome, same numbers; None: it does not matter here


@dataclass(frozen=True)
class _Pair:
    """An argument, then and now, with all the others."""

    name: str
    before: Mapping[str, Any]
    now: Mapping[str, Any]
    case: Circumstances

    @property
    def present(self) -> str:
        return f"now {_short(self.now[self.name])}"

    @property
    def kept(self) -> str:
        return f"the checkpoint's {_short(self.before[self.name])} stays"

    def setting(self, name: str) -> Any:
        return self.now.get(name)

    @staticmethod
    def seed_of_data(arguments: Mapping[str, Any]) -> Any:
        """It decides about the order of rows, and about what is random in them."""
        seed = arguments.get("data_seed")
        return arguments.get("seed") if seed is None else seed

    @property
    def schedule(self) -> str:
        return str(self.setting("lr_scheduler_type"))


_Rule = Callable[[_Pair], _Ruling]


def _other_numbers(pair: _Pair) -> _Ruling:
    return f"{pair.present}: other numbers from here on", False


def _same_numbers(pair: _Pair) -> _Ruling:
    return f"{pair.present}: the same numbers", True


def _of_optimizer(pair: _Pair) -> _Ruling:
    if pair.case.own_optimizer:
        return None
    return f"{pair.kept}, as part of the optimizer; to change it, fork", True


def _learning_rate(pair: _Pair) -> _Ruling:
    if pair.case.own_optimizer:
        return None
    options = pair.setting("lr_scheduler_kwargs") or {}
    reckons = pair.schedule == SchedulerType.POLYNOMIAL.value or options.get("min_lr") is not None
    if reckons and not pair.case.own_schedule:
        return f"{pair.kept}, but where the {pair.schedule} schedule ends is reckoned from the present one", False
    return f"{pair.kept}, as part of optimizer and schedule; to change it, fork", True


def _of_schedule(pair: _Pair) -> _Ruling:
    if pair.case.own_schedule:
        return None
    if pair.name == "warmup_steps" and pair.schedule in _WITHOUT_WARMUP:
        return None
    if pair.name == "lr_scheduler_kwargs" and pair.schedule in _METRIC_DRIVEN:
        return f"{pair.kept}, as part of the schedule; to change it, fork", True
    return f"{pair.present}: other learning rates", False


def _length(pair: _Pair) -> _Ruling:
    case = pair.case
    if case.steps_before == case.steps_now:
        return None
    if pair.name == "num_train_epochs" and (pair.setting("max_steps") or 0) > 0:
        return None  # not used
    ends = f"the run ends at step {case.steps_now}, not {case.steps_before}"
    warmup = pair.setting("warmup_steps") or 0
    by_share = 0 < warmup < 1 and pair.schedule not in _WITHOUT_WARMUP
    if case.own_schedule or (pair.schedule in _ENDLESS and not by_share):
        return ends, True
    return f"{ends}, and the {pair.schedule} schedule with it", False


def _rows_per_batch(pair: _Pair) -> _Ruling:
    if pair.name == "per_device_train_batch_size" and pair.setting("max_tokens_per_batch"):
        return None  # not used
    return _other_numbers(pair)


def _drop_last(pair: _Pair) -> _Ruling:
    return f"{pair.present}: the same numbers if the last batch of an epoch is full", None


def _budget(pair: _Pair) -> _Ruling:
    both = pair.before.get("max_tokens_per_batch") and pair.setting("max_tokens_per_batch")
    return _other_numbers(pair) if both else _order(pair)


def _window(pair: _Pair) -> _Ruling:
    if pair.before.get("max_tokens_per_batch") and pair.setting("max_tokens_per_batch"):
        return _other_numbers(pair)  # what is left of the epoch is cut anew, and nothing lost
    return _lengths(pair)


def _lengths(pair: _Pair) -> _Ruling:
    return _order(pair) if pair.setting("train_sampling_strategy") == "group_by_length" else None


def _order(pair: _Pair) -> _Ruling:
    return f"{pair.present}, and so {OTHER_ORDER}", False


def _data_seed(pair: _Pair) -> _Ruling:
    if pair.seed_of_data(pair.before) == pair.seed_of_data(pair.now):
        return _same_numbers(pair)
    if pair.case.is_stream or pair.case.own_order or not _order_follows_seed(pair):
        return _random_rows(pair)
    return _order(pair)


def _order_follows_seed(pair: _Pair) -> bool:
    strategy = pair.setting("train_sampling_strategy")
    if (
        strategy == "group_by_length"
        and not pair.setting("length_window")
        and not pair.setting("max_tokens_per_batch")
    ):
        return pair.case.processes > 1  # else it is drawn from the streams, which are part of the checkpoint
    return strategy != "sequential"


def _seed(pair: _Pair) -> _Ruling:
    if pair.seed_of_data(pair.before) == pair.seed_of_data(pair.now):
        return f"{pair.kept}, as random streams are part of the checkpoint", True
    return _data_seed(pair)


def _random_rows(pair: _Pair) -> _Ruling:
    return f"{pair.present}: the same numbers unless rows are read at random", None


def _workers(pair: _Pair) -> _Ruling:
    if pair.case.is_stream:
        return f"{pair.present}: the stream deals its rows out to workers in another way", False
    if pair.setting("isolate_rng"):
        return _same_numbers(pair)
    return _random_rows(pair)


def _sharing_of_streams(pair: _Pair) -> _Ruling:
    return f"{pair.present}: other numbers where rows, evaluations or callbacks draw at random", False


def _columns(pair: _Pair) -> _Ruling:
    return f"{pair.present}: the same numbers if the model gets the same columns", None


def _on_accelerators(pair: _Pair) -> _Ruling:
    return f"{pair.present}: other numbers where there is an accelerator", None


def _of_several_processes(pair: _Pair) -> _Ruling:
    return None if pair.case.processes == 1 else _other_numbers(pair)


def _best(pair: _Pair) -> _Ruling:
    if pair.case.best is None:
        return None
    return f"{pair.present}; the best so far, {pair.case.best:.4g}, was found with the other and still stands", True


def _evaluations(pair: _Pair) -> _Ruling:
    if pair.schedule not in _METRIC_DRIVEN or pair.case.own_schedule:
        return None
    return f"{pair.present}: the {pair.schedule} schedule goes by evaluations", False


_RULES: dict[str, _Rule] = {
    "learning_rate": _learning_rate,
    "weight_decay": _of_optimizer,
    "optim": _of_optimizer,
    "optim_args": _of_optimizer,
    "adam_beta1": _of_optimizer,
    "adam_beta2": _of_optimizer,
    "adam_epsilon": _of_optimizer,
    "lr_scheduler_type": _of_schedule,
    "lr_scheduler_kwargs": _of_schedule,
    "warmup_steps": _of_schedule,
    "max_steps": _length,
    "num_train_epochs": _length,
    "per_device_train_batch_size": _rows_per_batch,
    "gradient_accumulation_steps": _rows_per_batch,
    "max_tokens_per_batch": _budget,
    "dataloader_drop_last": _drop_last,
    "train_sampling_strategy": _order,
    "length_column_name": _lengths,
    "length_window": _window,
    "split_by_length": _other_numbers,
    "packing": _other_numbers,
    "remove_unused_columns": _columns,
    "dataloader_num_workers": _workers,
    "dataloader_in_order": _other_numbers,
    "seed": _seed,
    "data_seed": _data_seed,
    "isolate_rng": _sharing_of_streams,
    "max_grad_norm": _other_numbers,
    "label_smoothing_factor": _other_numbers,
    "neftune_noise_alpha": _other_numbers,
    "average_tokens_across_devices": _of_several_processes,
    "bf16": _other_numbers,
    "fp16": _other_numbers,
    "tf32": _on_accelerators,
    "use_cpu": _on_accelerators,
    "gradient_checkpointing": _same_numbers,
    "torch_compile": _other_numbers,
    "use_liger_kernel": _other_numbers,
    "metric_for_best_model": _best,
    "greater_is_better": _best,
    "eval_strategy": _evaluations,
    "eval_steps": _evaluations,
}

MATTER_TO_NUMBERS = tuple(_RULES)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."
