"""What `trainer.plan()` returns: what a training run will do, as data and as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..checkpoint.space import format_size as in_bytes
from .memory_plan import MemoryPlan
from .render import Page, Printable, Section, format_count, format_percent, format_small_percent, join_names


@dataclass(frozen=True)
class Length:
    """How long a run is."""

    steps: int
    rows: int | None  # of the training set; None: unknown
    epochs: float | None
    steps_per_epoch: int | None


@dataclass(frozen=True)
class BatchPlan:
    """What one optimizer step is computed from."""

    rows: int  # on average, where batches differ
    per_device: int
    micro_batches: int  # on every device
    processes: int
    cut: str  # how rows are divided into batches, unless by a fixed number of rows
    order: str
    padding: float | None = None  # of the tokens of the first batches
    saved_by_cutting: float | None = None  # of all tokens, by `split_by_length`


@dataclass(frozen=True)
class Weights:
    """The weights that are trained, and the optimizer."""

    optimizer: str
    trainable: int
    frozen: int
    decayed: int
    weight_decay: float
    clipped_at: float | None
    is_given: bool = False  # the optimizer was passed by the user

    @property
    def share(self) -> float:
        """Of all parameters, those that are trained."""
        return self.trainable / max(self.trainable + self.frozen, 1)


@dataclass(frozen=True)
class Rate:
    """The learning rate that a step uses; steps are format_count from 1."""

    step: int
    rate: float


@dataclass(frozen=True)
class Schedule:
    """The learning rate schedule."""

    name: str
    peak: float | None
    warmup_steps: int
    rates: tuple[Rate, ...] = ()
    is_given: bool = False


@dataclass(frozen=True)
class Computing:
    """The device, the number of processes and the number formats."""

    device: str
    processes: int
    weights: str  # the type of the weights
    mixed: str  # the precision of forward and backward: "bf16" or "fp16"; "no" if it is that of the weights
    gradient_checkpointing: bool
    compiled: str  # the backend; empty: the model is not compiled


@dataclass(frozen=True)
class Evaluations:
    """When the model is evaluated, and on what."""

    when: str
    count: int | None  # in the whole run; None: unknown
    rows: tuple[tuple[str, int | None], ...]  # of every set
    batches: int | None
    bytes: int | None = (
        None  # of the predictions and labels of one evaluation; None: unknown until a batch is computed
    )
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkpoints:
    """When checkpoints are written, how many and how large."""

    when: str
    directory: str
    count: int | None
    kept: int | None  # None: all
    bytes_each: int | None
    bytes_at_once: int | None
    free: int | None  # on the disk
    best: str | None = None  # the metric that decides which model is loaded in the end


@dataclass(frozen=True)
class Logs:
    """When numbers are logged, and to which trackers."""

    when: str
    count: int | None
    to: tuple[str, ...]


@dataclass(frozen=True)
class Duration:
    """How long the run takes, if it was measured."""

    seconds_per_step: float | None
    training: float | None = None
    evaluating: float | None = None
    saving: float | None = None
    source: str = ""

    @property
    def total(self) -> float | None:
        """The sum of the known parts, in seconds."""
        return None if self.training is None else self.training + (self.evaluating or 0) + (self.saving or 0)


@dataclass(frozen=True, repr=False)
class RunPlan(Printable):
    """The plan of a run. `print` it, or use `to_markdown()`, `to_dict()`, `to_json()`.

    >>> trainer.plan().length.steps  # doctest: +SKIP
    375
    """

    model: str
    length: Length
    batch: BatchPlan
    weights: Weights
    schedule: Schedule
    computing: Computing
    evaluations: Evaluations
    checkpoints: Checkpoints
    logs: Logs
    duration: Duration
    memory: MemoryPlan | None = None  # of each of several processes; None: one process, or tensor parallelism
    callbacks: tuple[str, ...] = ()  # callbacks of the user, which may stop the run early
    arguments: dict[str, Any] = field(default_factory=dict)  # those that determine the plan, with their present values
    remarks: tuple[str, ...] = ()  # settings that are probably not intended

    def build_page(self) -> Page:
        return build_page(self)


Row = tuple[str, str, str]


def build_page(plan: RunPlan) -> Page:
    """Return the page of a plan, subject by subject."""
    sections = [
        Section("length", format_count(plan.length.steps, "step"), _build_rows(plan, _LENGTH)),
        Section("batch", f"{format_count(plan.batch.rows, 'row')} per step", _build_rows(plan, _BATCH)),
        Section("learning", _describe_training(plan), _build_rows(plan, _LEARNING)),
        Section("computing", _describe_device(plan), _build_rows(plan, _COMPUTING)),
        *([plan.memory.build_section()] if plan.memory is not None else ()),
        Section("evaluation", plan.evaluations.when, _build_rows(plan, _EVALUATION)),
        Section("saving", plan.checkpoints.when, _build_rows(plan, _SAVING)),
        Section("logging", plan.logs.when, _build_rows(plan, _LOGGING)),
        Section("time", _describe_time(plan), _build_duration_rows(plan)),
        *(Section("WARNING", remark, mark="warning") for remark in plan.remarks),
    ]
    return Page(
        f"What train() will do with {plan.model}; the right column shows the arguments that change it", tuple(sections)
    )


class _Line(NamedTuple):
    """A name, the text for a plan (an empty one is not shown), and the arguments that change it."""

    name: str
    text: Callable[[RunPlan], str]
    changed_by: tuple[str, ...]


def _build_rows(plan: RunPlan, lines: Sequence[_Line]) -> tuple[Row, ...]:
    rows = [(line.name, line.text(plan), _format_arguments(plan, line.changed_by)) for line in lines]
    return tuple(row for row in rows if row[1])


def _format_arguments(plan: RunPlan, names: tuple[str, ...]) -> str:
    """Return the arguments that are set, with their values; if none is set, the first one."""
    known = plan.arguments
    shown = [name for name in names if known.get(name, name) is not None] or names[:1]
    return ", ".join(f"{name}={known[name]!r}" if name in known else name for name in shown)


# ---- length and batches ---------------------------------------------------------------------------------------------


def _describe_epochs(plan: RunPlan) -> str:
    length = plan.length
    if length.epochs is None:
        return "unknown: the data set has no length"
    per_epoch = "" if length.steps_per_epoch is None else f" of {format_count(length.steps_per_epoch, 'step')}"
    return f"{length.epochs:g}{per_epoch}"


def _describe_rows(plan: RunPlan) -> str:
    return "unknown" if plan.length.rows is None else f"{plan.length.rows:,}"


def _describe_batch(plan: RunPlan) -> str:
    batch = plan.batch
    if batch.cut:
        return batch.cut
    parts = [f"{batch.per_device} rows", format_count(batch.micro_batches, "micro-batch")]
    return " x ".join([*parts, format_count(batch.processes, "process")])


def _describe_padding(plan: RunPlan) -> str:
    batch = plan.batch
    if not batch.padding:
        return ""
    saved = f"; splitting by length saves {format_percent(batch.saved_by_cutting)}" if batch.saved_by_cutting else ""
    return f"{format_percent(batch.padding)} of the tokens{saved}"


_LENGTH = [
    _Line("epochs", _describe_epochs, ("num_train_epochs", "max_steps")),
    _Line("rows", _describe_rows, ("train_dataset",)),
    _Line(
        "ends early",
        lambda plan: f"{join_names(plan.callbacks)} may stop the run" if plan.callbacks else "",
        ("callbacks",),
    ),
]
_BATCH = [
    _Line("rows", _describe_batch, ("per_device_train_batch_size", "gradient_accumulation_steps")),
    _Line("order", lambda plan: plan.batch.order, ("train_sampling_strategy",)),
    _Line("padding", _describe_padding, ("split_by_length",)),
]


# ---- learning and computing -----------------------------------------------------------------------------------------


def _describe_training(plan: RunPlan) -> str:
    weights = plan.weights
    share = f", {format_small_percent(weights.share)} of all" if weights.frozen else ""
    return f"{format_number(weights.trainable)} parameters are trained{share}"


def _describe_optimizer(plan: RunPlan) -> str:
    return f"{plan.weights.optimizer}{', passed by you' if plan.weights.is_given else ''}"


def _describe_rates(plan: RunPlan) -> str:
    schedule = plan.schedule
    if schedule.is_given:
        return f"{schedule.name}, passed by you"
    if not schedule.rates:
        return schedule.name
    points = ", ".join(f"{rate.rate:.2g} at step {rate.step:,}" for rate in schedule.rates)
    return f"{schedule.name}: {points}"


def _describe_decay(plan: RunPlan) -> str:
    weights = plan.weights
    if not weights.weight_decay:
        return "none"
    return f"{weights.weight_decay:g} on {format_number(weights.decayed)} parameters (not on biases and norms)"


def _describe_frozen(plan: RunPlan) -> str:
    return f"{format_number(plan.weights.frozen)} parameters" if plan.weights.frozen else ""


def _describe_clipping(plan: RunPlan) -> str:
    limit = plan.weights.clipped_at
    return "not clipped" if limit is None else f"clipped to a norm of {limit:g}"


def _describe_warmup(plan: RunPlan) -> str:
    return format_count(plan.schedule.warmup_steps, "step") if not plan.schedule.is_given else ""


def _describe_device(plan: RunPlan) -> str:
    computing = plan.computing
    where = computing.device if computing.processes == 1 else f"{computing.processes} processes on {computing.device}"
    return f"on {where}"


def _describe_precision(plan: RunPlan) -> str:
    computing = plan.computing
    return (
        computing.weights
        if computing.mixed == "no"
        else f"{computing.mixed} under autocast, {computing.weights} weights"
    )


def _describe_memory(plan: RunPlan) -> str:
    return "activations are recomputed in backward" if plan.computing.gradient_checkpointing else ""


_LEARNING = [
    _Line("optimizer", _describe_optimizer, ("optim",)),
    _Line("rate", _describe_rates, ("learning_rate", "lr_scheduler_type")),
    _Line("warm-up", _describe_warmup, ("warmup_steps",)),
    _Line("decay", _describe_decay, ("weight_decay",)),
    _Line("frozen", _describe_frozen, ("requires_grad",)),
    _Line("gradient", _describe_clipping, ("max_grad_norm",)),
]
_COMPUTING = [
    _Line("precision", _describe_precision, ("bf16", "fp16")),
    _Line("memory", _describe_memory, ("gradient_checkpointing",)),
    _Line("compiled", lambda plan: plan.computing.compiled and f"by {plan.computing.compiled}", ("torch_compile",)),
]


# ---- evaluating, saving, logging ------------------------------------------------------------------------------------


def _describe_count(count: int | None) -> str:
    return "unknown" if count is None else format_count(count, "time")


def _describe_eval_rows(plan: RunPlan) -> str:
    sets = plan.evaluations.rows
    text = ", ".join(f"{name}: {'unknown' if rows is None else f'{rows:,}'} rows" for name, rows in sets)
    batches = plan.evaluations.batches
    return f"{text} in {format_count(batches, 'batch')}" if text and batches else text


def _describe_prediction_bytes(plan: RunPlan) -> str:
    evaluations = plan.evaluations
    if not evaluations.count or not evaluations.metrics:
        return ""
    return (
        "unknown until a batch is computed: see trainer.explain()"
        if evaluations.bytes is None
        else in_bytes(evaluations.bytes)
    )


def _describe_checkpoints(plan: RunPlan) -> str:
    return _describe_count(plan.checkpoints.count)


def _describe_size(plan: RunPlan) -> str:
    saved = plan.checkpoints
    return "" if not saved.bytes_each else f"about {in_bytes(saved.bytes_each)} each"


def _describe_kept(plan: RunPlan) -> str:
    saved = plan.checkpoints
    if not saved.bytes_each:
        return ""
    kept = "all of them" if saved.kept is None else f"the newest {saved.kept}"
    at_once = "" if saved.bytes_at_once is None else f", at most {in_bytes(saved.bytes_at_once)} at once"
    return f"{kept}{at_once}"


def _describe_disk(plan: RunPlan) -> str:
    saved = plan.checkpoints
    return f"{saved.directory}, {in_bytes(saved.free)} free" if saved.bytes_each and saved.free is not None else ""


def _describe_best(plan: RunPlan) -> str:
    return f"by {plan.checkpoints.best}, loaded at the end" if plan.checkpoints.best else ""


_EVALUATION = [
    _Line("how often", lambda plan: _describe_count(plan.evaluations.count), ("eval_strategy", "eval_steps")),
    _Line("rows", _describe_eval_rows, ("eval_dataset", "per_device_eval_batch_size")),
    _Line("metrics", lambda plan: ", ".join(plan.evaluations.metrics), ("compute_metrics",)),
    _Line("kept", _describe_prediction_bytes, ("eval_memory_mb",)),
]
_SAVING = [
    _Line("how often", _describe_checkpoints, ("save_strategy", "save_steps")),
    _Line("size", _describe_size, ("save_only_model",)),
    _Line("kept", _describe_kept, ("save_total_limit",)),
    _Line("where", _describe_disk, ("output_dir",)),
    _Line("best model", _describe_best, ("load_best_model_at_end", "metric_for_best_model")),
]
_LOGGING = [
    _Line("how often", lambda plan: _describe_count(plan.logs.count), ("logging_strategy", "logging_steps")),
    _Line("reported to", lambda plan: ", ".join(plan.logs.to), ("report_to",)),
]


# ---- time -----------------------------------------------------------------------------------------------------------


def _describe_time(plan: RunPlan) -> str:
    duration = plan.duration
    if duration.total is None:
        return "unknown until it is measured: call trainer.rehearse()"
    return f"about {format_duration(duration.total)} ({duration.source})"


def _build_duration_rows(plan: RunPlan) -> tuple[Row, ...]:
    duration = plan.duration
    if duration.total is None or duration.seconds_per_step is None:
        return ()
    rows = [("a step", format_duration(duration.seconds_per_step), "")]
    parts = {"training": duration.training, "evaluating": duration.evaluating, "saving": duration.saving}
    rows += [(name, format_duration(seconds), "") for name, seconds in parts.items() if seconds is not None]
    return tuple(rows)


# ---- words ----------------------------------------------------------------------------------------------------------


def format_number(number: int) -> str:
    """Format a large number.

    >>> format_number(950), format_number(12_500), format_number(109_482_240)
    ('950', '12.5 thousand', '109.5 million')
    """
    for least, unit, word in ((10**9, 10**9, "billion"), (10**6, 10**6, "million"), (10**4, 10**3, "thousand")):
        if number >= least:
            return f"{number / unit:.1f} {word}"
    return f"{number:,}"


def format_duration(seconds: float) -> str:
    """Format a duration.

    >>> format_duration(0.0123), format_duration(75), format_duration(7300)
    ('12 ms', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    days, hours = divmod(minutes // 60, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes % 60} min"
