"""What `trainer.explain()` returns: one batch from the data set to the metrics, as data and as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..checkpoint.space import format_size as in_bytes
from .render import Page, Printable, Section, counted, listed, percent, small_percent

Stage = Literal["data set", "batch", "forward", "outputs", "loss", "evaluation", "metrics"]


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
    rows: int | None  # None: unknown
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
class BatchSummary:
    """The batch as the collator made it."""

    collator: str
    rows: int | None
    values: tuple[Value, ...]
    padding: float | None = None  # of all tokens; None: unknown
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
class MetricInputs:
    """What `compute_metrics` is given."""

    data: str  # "evaluation set"
    function: str | None  # the name of compute_metrics; None: there is none
    called: str  # when, or why not
    values: tuple[Value, ...]
    ignored: float | None = None  # labels that are -100, of all
    example: tuple[tuple[str, str], ...] = ()  # the first row, as a person reads it
    rows: int | None = None  # of the whole set
    bytes: int | None = None  # that are kept of all rows; None: unknown, or nothing is kept
    spills: bool = False  # these are more than memory is meant to hold: they go to a temporary file


@dataclass(frozen=True)
class SuggestedMetrics:
    """Which metrics are in use, and which would fit."""

    in_use: tuple[str, ...]
    names: tuple[str, ...]
    why: str
    how: str  # to use them


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or probably not meant."""

    station: Stage
    what: str
    why: str = ""
    fix: str = ""
    certain: bool = True  # it cannot work; False: it works, and is worth a look


@dataclass(frozen=True, repr=False)
class BatchReport(Printable):
    """One batch on its way. `print` it, or take `to_markdown()`, `to_dict()`, `to_json()`.

    >>> report = trainer.explain()  # doctest: +SKIP
    >>> report.loss.mean_over  # doctest: +SKIP
    '8 labels, one per row'
    """

    model: str
    data: DataSet | None = None
    batch: BatchSummary | None = None
    call: Call | None = None
    outputs: Outputs | None = None
    loss: Loss | None = None
    evaluation: MetricInputs | None = None
    metrics: SuggestedMetrics | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def mistakes(self) -> tuple[Finding, ...]:
        """What cannot work."""
        return tuple(one for one in self.findings if one.certain)

    def page(self) -> Page:
        return build_page(self)


def build_page(report: BatchReport) -> Page:
    """Return the page of a report: every stage that was reached, then what is wrong."""
    source = f"One batch of the {report.data.name}" if report.data is not None else "One batch"
    told = [
        report.data and _data(report.data),
        report.batch and _batch(report.batch),
        report.call and _call(report.call),
        report.outputs and _outputs(report.outputs),
        report.loss and _loss(report.loss),
        report.evaluation and _received(report.evaluation),
        report.evaluation and _example(report.evaluation),
        report.metrics and _fitting(report.metrics),
        *map(_finding, report.findings),
    ]
    return Page(f"{source} through {report.model}", tuple(section for section in told if section))


def _data(data: DataSet) -> Section:
    rows = "an unknown number of rows" if data.rows is None else counted(data.rows, "row")
    columns = tuple(
        (column.name, column.kind, f"{'kept' if column.kept else 'LEFT OUT'}: {column.why}") for column in data.columns
    )
    return Section("data set", f"{data.name}: {rows} ({data.kind})", columns, _if(data.note))


def _batch(batch: BatchSummary) -> Section:
    rows = "" if batch.rows is None else f"{counted(batch.rows, 'row')}, "
    summary = f"{rows}put together by {batch.collator}"
    notes = []
    if batch.micro_batches > 1:
        notes.append(f"This is the first of {batch.micro_batches} micro-batches that one batch is cut into.")
    if batch.padding:
        saved = (
            f"; split_by_length=True would save {percent(batch.saved_by_cutting)}" if batch.saved_by_cutting else ""
        )
        notes.append(f"Padding: {percent(batch.padding)} of the tokens{saved}.")
    if batch.left_out:
        notes.append(f"The collator does not pass on {listed(batch.left_out)}.")
    return Section("batch", summary, _values(batch.values), tuple(notes))


def _call(call: Call) -> Section:
    notes = []
    if "num_items_in_batch" in call.added:
        notes.append("num_items_in_batch is the number of labels to predict; the trainer adds it.")
    others = [name for name in call.added if name != "num_items_in_batch"]
    if others:
        notes.append(f"{listed(others)}: not in the batch, added on the way.")
    if call.withheld:
        notes.append(f"Not given to forward: {listed(call.withheld)} (kept for the loss).")
    if call.not_given:
        notes.append(f"Could also be given: {listed(call.not_given)}.")
    if call.trained < 1:
        notes.append(f"Training changes {small_percent(call.trained)} of the parameters; the others are frozen.")
    if call.calls > 1:
        notes.append(f"The loss calls the model {call.calls} times; this is the first.")
    return Section(
        "forward", f"{call.model}({', '.join(call.given)}) on {call.device}, {call.precision}", (), tuple(notes)
    )


def _outputs(outputs: Outputs) -> Section:
    return Section("outputs", outputs.kind, _values(outputs.values))


def _loss(loss: Loss) -> Section:
    value = "" if loss.value is None else f"{loss.value:.4g} for this batch (dropout off): "
    notes = [f"{value}the mean over {loss.mean_over}."]
    if loss.shifts:
        notes.append("What is predicted at place i is compared with label i + 1.")
    return Section("loss", f"{loss.where}, computed by {loss.source}", (), tuple(notes))


def _received(received: MetricInputs) -> Section:
    notes = []
    if received.ignored is not None:
        notes.append(
            f"{percent(received.ignored)} of the labels are -100: metrics have to leave them out."
            if received.ignored
            else "No label is -100: all of them count."
        )
    if received.bytes is not None and received.rows is not None:
        spills = "; beyond eval_memory_mb they are kept in a file that looks like an array" if received.spills else ""
        notes.append(f"Kept of {counted(received.rows, 'row')}: about {in_bytes(received.bytes)}{spills}.")
    return Section("evaluation", received.called, _values(received.values), tuple(notes))


def _example(received: MetricInputs) -> Section | None:
    if not received.example:
        return None
    return Section("example", "the first row of this batch, as a person reads it", received.example)


def _fitting(fitting: SuggestedMetrics) -> Section:
    in_use = f"in use: {listed(fitting.in_use)}" if fitting.in_use else "in use: none, so eval_loss is all there is"
    rows: tuple[tuple[str, ...], ...] = (
        (("would fit", ", ".join(fitting.names)), ("because", fitting.why), ("to use them", fitting.how))
        if fitting.names
        else (("would fit", fitting.why),)
    )
    return Section("metrics", in_use, tuple(row for row in rows if row[1]))


def _finding(finding: Finding) -> Section:
    title = "MISTAKE" if finding.certain else "LOOK"
    rows = tuple((word, text) for word, text in (("why", finding.why), ("fix", finding.fix)) if text)
    return Section(title, finding.what, rows, mark="mistake" if finding.certain else "doubt")


def _values(values: Iterable[Value]) -> tuple[tuple[str, ...], ...]:
    return tuple((one.name, "" if one.shape is None else str(one.shape), one.dtype, one.note) for one in values)


def _if(text: str) -> tuple[str, ...]:
    return (text,) if text else ()
