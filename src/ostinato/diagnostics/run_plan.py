"""What `trainer.plan()` returns: what a training run will do, as data and as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..checkpoint.space import format_size as in_bytes
from .render import Page, Printable, Section, counted, listed, percent, small_percent


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
    cut: str  # how rows become batches, where it is not so many rows each
    order: str
    padding: float | None = None  # of the tokens of the first batches
    saved_by_cutting: float | None = None  # of all tokens, by `split_by_length`


@dataclass(frozen=True)
class Weights:
    """What is trained, by which optimizer."""

    optimizer: str
    trainable: int
    frozen: int
    decayed: int
    weight_decay: float
    clipped_at: float | None
    is_given: bool = False  # the optimizer is the user's

    @property
    def share(self) -> float:
        """Of all parameters, those that are trained."""
        return self.trainable / max(self.trainable + self.frozen, 1)


@dataclass(frozen=True)
class Rate:
    """The learning rate that a step uses; steps are counted from 1."""

    step: int
    rate: float


@dataclass(frozen=True)
class Schedule:
    """How the learning rate goes."""

    name: str
    peak: float | None
    warmup_steps: int
    rates: tuple[Rate, ...] = ()
    is_given: bool = False


@dataclass(frozen=True)
class Computing:
    """Where and in which numbers."""

    device: str
    processes: int
    weights: str  # the type of the weights
    mixed: str  # the precision of forward and backward where it is another: "bf16", "fp16"; else "no"
    gradient_checkpointing: bool
    compiled: str  # by whom; nothing: not at all


@dataclass(frozen=True)
class Evaluations:
    """When, and of what."""

    when: str
    count: int | None  # in the whole run; None: unknown
    rows: tuple[tuple[str, int | None], ...]  # of every set
    batches: int | None
    bytes: int | None = (
        None  # that predictions and labels of one evaluation take; None: unknown until a batch was seen
    )
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkpoints:
    """When, how many, how large."""

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
    """When numbers are reported, and to whom."""

    when: str
    count: int | None
    to: tuple[str, ...]


@dataclass(frozen=True)
class Duration:
    """How long it takes, where it was measured."""

    seconds_per_step: float | None
    training: float | None = None
    evaluating: float | None = None
    saving: float | None = None
    source: str = ""

    @property
    def total(self) -> float | None:
        """Seconds, of all that is known."""
        return None if self.training is None else self.training + (self.evaluating or 0) + (self.saving or 0)


@dataclass(frozen=True, repr=False)
class RunPlan(Printable):
    """A run before it runs. `print` it, or take `to_markdown()`, `to_dict()`, `to_json()`.

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
    callbacks: tuple[str, ...] = ()  # the user's; they may end the run earlier
    arguments: dict[str, Any] = field(default_factory=dict)  # those that decide, as they stand
    remarks: tuple[str, ...] = ()  # what is probably not meant

    def page(self) -> Page:
        return build_page(self)


Row = tuple[str, str, str]


def build_page(plan: RunPlan) -> Page:
    """Return the page of a plan, subject by subject."""
    sections = [
        Section("length", counted(plan.length.steps, "step"), _rows(plan, _LENGTH)),
        Section("batch", f"{counted(plan.batch.rows, 'row')} for every step", _rows(plan, _BATCH)),
        Section("learning", _learning(plan), _rows(plan, _LEARNING)),
        Section("computing", _computing(plan), _rows(plan, _COMPUTING)),
        Section("evaluation", plan.evaluations.when, _rows(plan, _EVALUATION)),
        Section("saving", plan.checkpoints.when, _rows(plan, _SAVING)),
        Section("logging", plan.logs.when, _rows(plan, _LOGGING)),
        Section("time", _time(plan), _durations(plan)),
        *(Section("LOOK", remark, mark="doubt") for remark in plan.remarks),
    ]
    return Page(f"What train() will do with {plan.model}; at the right: what changes it", tuple(sections))


class _Line(NamedTuple):
    """A name, the text for a plan (empty: the line is left out), and the arguments that change it."""

    name: str
    text: Callable[[RunPlan], str]
    changed_by: tuple[str, ...]


def _rows(plan: RunPlan, lines: Sequence[_Line]) -> tuple[Row, ...]:
    told = [(line.name, line.text(plan), _arguments(plan, line.changed_by)) for line in lines]
    return tuple(row for row in told if row[1])


def _arguments(plan: RunPlan, names: tuple[str, ...]) -> str:
    """Return the arguments that are set, with their values; the first one in any case."""
    known = plan.arguments
    told = [name for name in names if known.get(name, name) is not None] or names[:1]
    return ", ".join(f"{name}={known[name]!r}" if name in known else name for name in told)


# ---- length and batches ---------------------------------------------------------------------------------------------


def _epochs(plan: RunPlan) -> str:
    length = plan.length
    if length.epochs is None:
        return "unknown: the data set has no length"
    per_epoch = "" if length.steps_per_epoch is None else f" of {counted(length.steps_per_epoch, 'step')}"
    return f"{length.epochs:g}{per_epoch}"


def _training_rows(plan: RunPlan) -> str:
    return "unknown" if plan.length.rows is None else f"{plan.length.rows:,}"


def _make_up(plan: RunPlan) -> str:
    batch = plan.batch
    if batch.cut:
        return batch.cut
    parts = [f"{batch.per_device} rows", counted(batch.micro_batches, "micro-batch")]
    return " x ".join([*parts, counted(batch.processes, "process")])


def _padding(plan: RunPlan) -> str:
    batch = plan.batch
    if not batch.padding:
        return ""
    saved = f"; cutting by length saves {percent(batch.saved_by_cutting)}" if batch.saved_by_cutting else ""
    return f"{percent(batch.padding)} of the tokens{saved}"


_LENGTH = [
    _Line("epochs", _epochs, ("num_train_epochs", "max_steps")),
    _Line("rows", _training_rows, ("train_dataset",)),
    _Line(
        "ends early", lambda plan: f"{listed(plan.callbacks)} may stop it" if plan.callbacks else "", ("callbacks",)
    ),
]
_BATCH = [
    _Line("rows", _make_up, ("per_device_train_batch_size", "gradient_accumulation_steps")),
    _Line("order", lambda plan: plan.batch.order, ("train_sampling_strategy",)),
    _Line("padding", _padding, ("split_by_length",)),
]


# ---- learning and computing -----------------------------------------------------------------------------------------


def _learning(plan: RunPlan) -> str:
    weights = plan.weights
    share = f", {small_percent(weights.share)} of all" if weights.frozen else ""
    return f"{short(weights.trainable)} parameters are trained{share}"


def _optimizer(plan: RunPlan) -> str:
    return f"{plan.weights.optimizer}{', given by you' if plan.weights.is_given else ''}"


def _rates(plan: RunPlan) -> str:
    schedule = plan.schedule
    if schedule.is_given:
        return f"{schedule.name}, given by you"
    if not schedule.rates:
        return schedule.name
    points = ", ".join(f"{rate.rate:.2g} at step {rate.step:,}" for rate in schedule.rates)
    return f"{schedule.name}: {points}"


def _decayed(plan: RunPlan) -> str:
    weights = plan.weights
    if not weights.weight_decay:
        return "none"
    return f"{weights.weight_decay:g} on {short(weights.decayed)} of them (not on biases and norms)"


def _frozen(plan: RunPlan) -> str:
    return f"{short(plan.weights.frozen)} parameters" if plan.weights.frozen else ""


def _clipping(plan: RunPlan) -> str:
    limit = plan.weights.clipped_at
    return "not clipped" if limit is None else f"clipped to a norm of {limit:g}"


def _warmup(plan: RunPlan) -> str:
    return counted(plan.schedule.warmup_steps, "step") if not plan.schedule.is_given else ""


def _computing(plan: RunPlan) -> str:
    computing = plan.computing
    where = computing.device if computing.processes == 1 else f"{computing.processes} processes on {computing.device}"
    return f"on {where}"


def _precision(plan: RunPlan) -> str:
    computing = plan.computing
    return computing.weights if computing.mixed == "no" else f"{computing.mixed} where it is safe, {computing.weights}"


def _memory(plan: RunPlan) -> str:
    return "activations are computed twice, not kept" if plan.computing.gradient_checkpointing else ""


_LEARNING = [
    _Line("optimizer", _optimizer, ("optim",)),
    _Line("rate", _rates, ("learning_rate", "lr_scheduler_type")),
    _Line("warm-up", _warmup, ("warmup_steps",)),
    _Line("decay", _decayed, ("weight_decay",)),
    _Line("frozen", _frozen, ("requires_grad",)),
    _Line("gradient", _clipping, ("max_grad_norm",)),
]
_COMPUTING = [
    _Line("precision", _precision, ("bf16", "fp16")),
    _Line("memory", _memory, ("gradient_checkpointing",)),
    _Line("compiled", lambda plan: plan.computing.compiled and f"by {plan.computing.compiled}", ("torch_compile",)),
]


# ---- evaluating, saving, logging ------------------------------------------------------------------------------------


def _how_often(count: int | None) -> str:
    return "unknown" if count is None else counted(count, "time")


def _evaluated(plan: RunPlan) -> str:
    sets = plan.evaluations.rows
    text = ", ".join(f"{name}: {'unknown' if rows is None else f'{rows:,}'} rows" for name, rows in sets)
    batches = plan.evaluations.batches
    return f"{text} in {counted(batches, 'batch')}" if text and batches else text


def _prediction_bytes(plan: RunPlan) -> str:
    evaluations = plan.evaluations
    if not evaluations.count or not evaluations.metrics:
        return ""
    return (
        "see trainer.explain(): it takes a batch to tell" if evaluations.bytes is None else in_bytes(evaluations.bytes)
    )


def _checkpoints(plan: RunPlan) -> str:
    return _how_often(plan.checkpoints.count)


def _size(plan: RunPlan) -> str:
    saved = plan.checkpoints
    return "" if not saved.bytes_each else f"about {in_bytes(saved.bytes_each)} each"


def _kept(plan: RunPlan) -> str:
    saved = plan.checkpoints
    if not saved.bytes_each:
        return ""
    kept = "all of them" if saved.kept is None else f"the newest {saved.kept}"
    at_once = "" if saved.bytes_at_once is None else f", at most {in_bytes(saved.bytes_at_once)} at once"
    return f"{kept}{at_once}"


def _disk(plan: RunPlan) -> str:
    saved = plan.checkpoints
    return f"{saved.directory}, {in_bytes(saved.free)} free" if saved.bytes_each and saved.free is not None else ""


def _best(plan: RunPlan) -> str:
    return f"by {plan.checkpoints.best}, loaded in the end" if plan.checkpoints.best else ""


_EVALUATION = [
    _Line("how often", lambda plan: _how_often(plan.evaluations.count), ("eval_strategy", "eval_steps")),
    _Line("rows", _evaluated, ("eval_dataset", "per_device_eval_batch_size")),
    _Line("metrics", lambda plan: ", ".join(plan.evaluations.metrics), ("compute_metrics",)),
    _Line("kept", _prediction_bytes, ("eval_memory_mb",)),
]
_SAVING = [
    _Line("how often", _checkpoints, ("save_strategy", "save_steps")),
    _Line("size", _size, ("save_only_model",)),
    _Line("kept", _kept, ("save_total_limit",)),
    _Line("where", _disk, ("output_dir",)),
    _Line("best model", _best, ("load_best_model_at_end", "metric_for_best_model")),
]
_LOGGING = [
    _Line("how often", lambda plan: _how_often(plan.logs.count), ("logging_strategy", "logging_steps")),
    _Line("reported to", lambda plan: ", ".join(plan.logs.to), ("report_to",)),
]


# ---- time -----------------------------------------------------------------------------------------------------------


def _time(plan: RunPlan) -> str:
    duration = plan.duration
    if duration.total is None:
        return "unknown until something was measured: trainer.rehearse() takes seconds"
    return f"about {in_time(duration.total)} ({duration.source})"


def _durations(plan: RunPlan) -> tuple[Row, ...]:
    duration = plan.duration
    if duration.total is None or duration.seconds_per_step is None:
        return ()
    rows = [("a step", in_time(duration.seconds_per_step), "")]
    parts = {"training": duration.training, "evaluating": duration.evaluating, "saving": duration.saving}
    rows += [(name, in_time(seconds), "") for name, seconds in parts.items() if seconds is not None]
    return tuple(rows)


# ---- words ----------------------------------------------------------------------------------------------------------


def short(number: int) -> str:
    """Return a large number in words.

    >>> short(950), short(12_500), short(109_482_240)
    ('950', '12.5 thousand', '109.5 million')
    """
    for least, unit, word in ((10**9, 10**9, "billion"), (10**6, 10**6, "million"), (10**4, 10**3, "thousand")):
        if number >= least:
            return f"{number / unit:.1f} {word}"
    return f"{number:,}"


def in_time(seconds: float) -> str:
    """Return a duration in words.

    >>> in_time(0.0123), in_time(75), in_time(7300)
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
