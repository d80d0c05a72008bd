"""How the journey of a batch is told: short lines, in the order in which things happen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..checkpoint.space import in_words as in_bytes
from .render import Page, Section

if TYPE_CHECKING:
    from .journey import Call, Collated, DataSet, Finding, Fitting, Journey, Loss, Outputs, Received, Value

_SHOWN = 8


def page_of(journey: Journey) -> Page:
    """Every station that was reached, then what is wrong."""
    source = f"one batch of the {journey.data.name}" if journey.data is not None else "one batch"
    told = [
        journey.data and _data(journey.data),
        journey.batch and _batch(journey.batch),
        journey.call and _call(journey.call),
        journey.outputs and _outputs(journey.outputs),
        journey.loss and _loss(journey.loss),
        journey.evaluation and _received(journey.evaluation),
        journey.evaluation and _example(journey.evaluation),
        journey.metrics and _fitting(journey.metrics),
        *map(_finding, journey.findings),
    ]
    return Page(f"The journey of {source} through {journey.model}", tuple(section for section in told if section))


def _data(data: DataSet) -> Section:
    rows = "rows that nobody has counted" if data.rows is None else counted(data.rows, "row")
    columns = tuple(
        (column.name, column.kind, f"{'kept' if column.kept else 'LEFT OUT'}: {column.why}") for column in data.columns
    )
    return Section("data set", f"{data.name}: {rows} ({data.kind})", columns, _if(data.note))


def _batch(batch: Collated) -> Section:
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


def _received(received: Received) -> Section:
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


def _example(received: Received) -> Section | None:
    if not received.example:
        return None
    return Section("example", "the first row of this batch, as a person reads it", received.example)


def _fitting(fitting: Fitting) -> Section:
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


# ---- words --------------------------------------------------------------------------------------------------------


def listed(names: Sequence[str], most: int = _SHOWN) -> str:
    """`a, b and 3 more`

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, word: str) -> str:
    """`1 row`, `24,000 rows`

    >>> counted(1, "row"), counted(24_000, "row"), counted(2, "batch")
    ('1 row', '24,000 rows', '2 batches')
    """
    return f"{number:,} {word}{'' if number == 1 else 'es' if word.endswith(('s', 'ch')) else 's'}"


def percent(share: float | None) -> str:
    """`27 %`

    >>> percent(0.274), percent(0.001)
    ('27 %', 'less than 1 %')
    """
    share = share or 0.0
    return "less than 1 %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def small_percent(share: float) -> str:
    """A share that may be very small, as that of adapters in a large model.

    >>> small_percent(0.0357), small_percent(0.00064), small_percent(0.0000001)
    ('3.57 %', '0.06 %', 'less than 0.01 %')
    """
    return "less than 0.01 %" if 0 < share < 0.0001 else f"{share * 100:.2f} %"
