"""What `trainer.explain()` returns: one batch from the data set to the metrics, as data and as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..checkpoint.space import format_size as in_bytes
from .render import Page, Printable, Section, format_count, format_percent, format_small_percent, join_names

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
    """A named value: a tensor by its shape and dtype, anything else by its type."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    note: str = ""


@dataclass(frozen=True)
class BatchSummary:
    """The batch that the collator returned."""

    collator: str
    rows: int | None
    values: tuple[Value, ...]
    padding: float | None = None  # of all tokens; None: unknown
    saved_by_cutting: float | None = None  # of all tokens, by `split_by_length`
    micro_batches: int = 1  # into which it is split
    left_out: tuple[str, ...] = ()  # columns that the model takes and the collator drops


@dataclass(frozen=True)
class Call:
    """How the model is called."""

    model: str
    device: str
    precision: str
    given: tuple[str, ...]
    added: tuple[str, ...] = ()  # inputs that are not in the batch
    withheld: tuple[str, ...] = ()  # in the batch, and not given to forward
    not_given: tuple[str, ...] = ()  # inputs that forward also accepts
    calls: int = 1  # for one loss
    trained: float = 1.0  # the share of the parameters that training changes


@dataclass(frozen=True)
class Outputs:
    """What forward returns."""

    kind: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Loss:
    """The loss that training minimizes."""

    where: str  # "outputs['loss']"
    source: str  # what computes it
    value: float | None
    mean_over: str  # "8 labels, one per row"
    shifts: bool = False  # the prediction at a position is compared with the next label


@dataclass(frozen=True)
class MetricInputs:
    """What `compute_metrics` receives."""

    data: str  # "evaluation set"
    function: str | None  # the name of compute_metrics; None: there is none
    called: str  # when, or why not
    values: tuple[Value, ...]
    ignored: float | None = None  # labels that are -100, of all
    example: tuple[tuple[str, str], ...] = ()  # the first row, decoded
    rows: int | None = None  # of the whole set
    bytes: int | None = None  # kept for all rows; None: unknown, or nothing is kept
    spills: bool = False  # more than eval_memory_mb: they are kept in a temporary file


@dataclass(frozen=True)
class SuggestedMetrics:
    """The metrics in use, and those that suit the model and its labels."""

    in_use: tuple[str, ...]
    names: tuple[str, ...]
    why: str
    how: str  # to use them


@dataclass(frozen=True)
class Finding:
    """A mistake, or something that is probably not intended."""

    station: Stage
    what: str
    why: str = ""
    fix: str = ""
    certain: bool = True  # it cannot work; False: it works, and is suspicious


@dataclass(frozen=True, repr=False)
class BatchReport(Printable):
    """One batch from the data set to the metrics. `print` it, or use `to_markdown()`, `to_dict()`, `to_json()`.

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
        """The findings that cannot work."""
        return tuple(one for one in self.findings if one.certain)

    def build_page(self) -> Page:
        return build_page(self)


def build_page(report: BatchReport) -> Page:
    """Return the page of a report: every stage that was reached, then what is wrong."""
    source = f"One batch of the {report.data.name}" if report.data is not None else "One batch"
    sections = [
        report.data and _build_data_section(report.data),
        report.batch and _build_batch_section(report.batch),
        report.call and _build_call_section(report.call),
        report.outputs and _build_outputs_section(report.outputs),
        report.loss and _build_loss_section(report.loss),
        report.evaluation and _build_evaluation_section(report.evaluation),
        report.evaluation and _build_example_section(report.evaluation),
        report.metrics and _build_metrics_section(report.metrics),
        *map(_build_finding_section, report.findings),
    ]
    return Page(f"{source} through {report.model}", tuple(section for section in sections if section))


def _build_data_section(data: DataSet) -> Section:
    rows = "an unknown number of rows" if data.rows is None else format_count(data.rows, "row")
    columns = tuple(
        (column.name, column.kind, f"{'kept' if column.kept else 'LEFT OUT'}: {column.why}") for column in data.columns
    )
    return Section("data set", f"{data.name}: {rows} ({data.kind})", columns, (data.note,) if data.note else ())


def _build_batch_section(batch: BatchSummary) -> Section:
    rows = "" if batch.rows is None else f"{format_count(batch.rows, 'row')}, "
    summary = f"{rows}collated by {batch.collator}"
    notes = []
    if batch.micro_batches > 1:
        notes.append(f"This is the first of {batch.micro_batches} micro-batches into which one batch is split.")
    if batch.padding:
        saved = (
            f"; split_by_length=True would save {format_percent(batch.saved_by_cutting)}"
            if batch.saved_by_cutting
            else ""
        )
        notes.append(f"Padding: {format_percent(batch.padding)} of the tokens{saved}.")
    if batch.left_out:
        notes.append(f"The collator drops {join_names(batch.left_out)}.")
    return Section("batch", summary, _build_value_rows(batch.values), tuple(notes))


def _build_call_section(call: Call) -> Section:
    notes = []
    if "num_items_in_batch" in call.added:
        notes.append("num_items_in_batch is the number of labels to predict; the trainer adds it.")
    others = [name for name in call.added if name != "num_items_in_batch"]
    if others:
        notes.append(f"{join_names(others)}: not in the batch, added before the call.")
    if call.withheld:
        notes.append(f"Not passed to forward: {join_names(call.withheld)} (kept for the loss).")
    if call.not_given:
        notes.append(f"Also accepted: {join_names(call.not_given)}.")
    if call.trained < 1:
        notes.append(
            f"Training changes {format_small_percent(call.trained)} of the parameters; the others are frozen."
        )
    if call.calls > 1:
        notes.append(f"The loss calls the model {call.calls} times; this is the first.")
    return Section(
        "forward", f"{call.model}({', '.join(call.given)}) on {call.device}, {call.precision}", (), tuple(notes)
    )


def _build_outputs_section(outputs: Outputs) -> Section:
    return Section("outputs", outputs.kind, _build_value_rows(outputs.values))


def _build_loss_section(loss: Loss) -> Section:
    value = "" if loss.value is None else f"{loss.value:.4g} for this batch (dropout off): "
    notes = [f"{value}the mean over {loss.mean_over}."]
    if loss.shifts:
        notes.append("The prediction at position i is compared with label i + 1.")
    return Section("loss", f"{loss.where}, computed by {loss.source}", (), tuple(notes))


def _build_evaluation_section(received: MetricInputs) -> Section:
    notes = []
    if received.ignored is not None:
        notes.append(
            f"{format_percent(received.ignored)} of the labels are -100: metrics have to exclude them."
            if received.ignored
            else "No label is -100: all of them count."
        )
    if received.bytes is not None and received.rows is not None:
        spills = "; beyond eval_memory_mb they are memory-mapped from a temporary file" if received.spills else ""
        notes.append(f"Kept of {format_count(received.rows, 'row')}: about {in_bytes(received.bytes)}{spills}.")
    return Section("evaluation", received.called, _build_value_rows(received.values), tuple(notes))


def _build_example_section(received: MetricInputs) -> Section | None:
    if not received.example:
        return None
    return Section("example", "the first row of this batch, decoded", received.example)


def _build_metrics_section(fitting: SuggestedMetrics) -> Section:
    in_use = f"in use: {join_names(fitting.in_use)}" if fitting.in_use else "in use: none; only eval_loss is reported"
    rows: tuple[tuple[str, ...], ...] = (
        (("suitable", ", ".join(fitting.names)), ("because", fitting.why), ("to use them", fitting.how))
        if fitting.names
        else (("suitable", fitting.why),)
    )
    return Section("metrics", in_use, tuple(row for row in rows if row[1]))


def _build_finding_section(finding: Finding) -> Section:
    title = "MISTAKE" if finding.certain else "WARNING"
    rows = tuple((word, text) for word, text in (("why", finding.why), ("fix", finding.fix)) if text)
    return Section(title, finding.what, rows, mark="mistake" if finding.certain else "warning")


def _build_value_rows(values: Iterable[Value]) -> tuple[tuple[str, ...], ...]:
    return tuple((one.name, "" if one.shape is None else str(one.shape), one.dtype, one.note) for one in values)
