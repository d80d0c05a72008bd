"""The journey of one batch, as data: from the columns of the data set to what the metric function receives.

    data set -> batch -> forward -> outputs -> loss -> evaluation -> metrics

Each station is a frozen dataclass; `journey_page.py` says how they are told. A journey that ends early has None for
the stations it did not reach, and the mistake among its `findings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .journey_text import page_of
from .render import Account, Page

Station = Literal["data set", "batch", "forward", "outputs", "loss", "evaluation", "metrics"]


@dataclass(frozen=True)
class Column:
    """A column of the data set, and whether it reaches the model."""

    name: str
    kind: str  # "int", "list of 3 to 10 int", "text"
    kept: bool
    why: str


@dataclass(frozen=True)
class DataSet:
    """Where the batch comes from."""

    name: str  # "training set"
    kind: str  # "list", "Dataset", "stream"
    rows: int | None  # None: nobody knows
    columns: tuple[Column, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Value:
    """Something with a name: a tensor by its shape and type, anything else by its type."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    note: str = ""


@dataclass(frozen=True)
class Collated:
    """The batch as the collator made it."""

    collator: str
    rows: int | None
    values: tuple[Value, ...]
    padding: float | None = None  # of all tokens; None: nobody can tell
    saved_by_cutting: float | None = None  # of all tokens, by `split_by_length`
    micro_batches: int = 1  # into which it is cut
    left_out: tuple[str, ...] = ()  # columns that the model takes, and the collator does not pass on


@dataclass(frozen=True)
class Call:
    """How the model is called."""

    model: str
    device: str
    precision: str
    given: tuple[str, ...]
    added: tuple[str, ...] = ()  # of those given: what is not in the batch
    withheld: tuple[str, ...] = ()  # in the batch, and not given to forward
    not_given: tuple[str, ...] = ()  # what forward would take, too
    calls: int = 1  # for one loss
    trained: float = 1.0  # of the parameters, the share that training changes


@dataclass(frozen=True)
class Outputs:
    """What forward returns."""

    kind: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Loss:
    """What training makes smaller."""

    where: str  # "outputs['loss']"
    source: str  # who computes it
    value: float | None
    mean_over: str  # "8 labels, one per row"
    shifts: bool = False  # what is predicted at a place is compared with the next label


@dataclass(frozen=True)
class Received:
    """What `compute_metrics` is given."""

    data: str  # "evaluation set"
    function: str | None  # the name of compute_metrics; None: there is none
    called: str  # when, or why not
    values: tuple[Value, ...]
    ignored: float | None = None  # labels that are -100, of all
    example: tuple[tuple[str, str], ...] = ()  # the first row, as a person reads it
    rows: int | None = None  # of the whole set
    bytes: int | None = None  # that are kept of all rows; None: nobody knows, or nothing is kept
    spills: bool = False  # these are more than memory is meant to hold: they go to a temporary file


@dataclass(frozen=True)
class Fitting:
    """Which metrics are in use, and which would fit."""

    in_use: tuple[str, ...]
    names: tuple[str, ...]
    why: str
    how: str  # to use them


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or probably not meant."""

    station: Station
    what: str
    why: str = ""
    fix: str = ""
    certain: bool = True  # it cannot work; False: it works, and is worth a look


@dataclass(frozen=True, repr=False)
class Journey(Account):
    """One batch on its way. `print` it, or take `to_markdown()`, `to_dict()`, `to_json()`.

    >>> journey = trainer.explain()  # doctest: +SKIP
    >>> journey.loss.mean_over  # doctest: +SKIP
    '8 labels, one per row'
    """

    model: str
    data: DataSet | None = None
    batch: Collated | None = None
    call: Call | None = None
    outputs: Outputs | None = None
    loss: Loss | None = None
    evaluation: Received | None = None
    metrics: Fitting | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def mistakes(self) -> tuple[Finding, ...]:
        """What cannot work."""
        return tuple(one for one in self.findings if one.certain)

    def page(self) -> Page:
        return page_of(self)
