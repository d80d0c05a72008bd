"""What a training run will do, as data: known before anything is computed. `plan_text.py` says how it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .render import Account, Page
from .run_plan_text import page_of


@dataclass(frozen=True)
class Length:
    """How long a run is."""

    steps: int
    rows: int | None  # of the training set; None: nobody knows
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
    count: int | None  # in the whole run; None: nobody knows
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
class RunPlan(Account):
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
        return page_of(self)
