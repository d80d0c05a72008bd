"""Errors for columns that the model does not take, does not find, or has under another name."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..core.errors import DataError, ForwardCallError, MissingLabelsError, ModelOutputError
from ..core.phrases import join_names
from ..data.collate_errors import find_absent_columns
from ..data.dataset_errors import find_missing_inputs
from ..loss.model_outputs import NoLossError
from .context import FailureContext

_LOSS_FUNC = "compute_loss_func=my_loss"


def find_left_out_columns(dataset: Any, taken: Collection[str]) -> list[str]:
    """Return the columns of the first row that do not reach the model."""
    try:
        row = dataset[0]
    except Exception:  # a stream, or rows that cannot be read: the columns are unknown
        return []
    return [name for name in row if name not in taken] if isinstance(row, Mapping) else []


def explain_unexpected_columns(context: FailureContext) -> DataError | None:
    """Return the error for a batch without a required input of forward, or with one that forward does not take."""
    given = list(context.columns)
    labels = [name for name in ("labels", *context.label_names) if name in given and not context.takes(name)]
    if labels:
        return ForwardCallError(
            what=f"{context.name}.forward does not take {labels[0]!r}",
            why=f"the batch has {join_names(given)}; forward takes {join_names(context.list_parameters())}: "
            "there is no loss",
            fix=f"pass {_LOSS_FUNC}, or let forward take {labels[0]}=None and return {{'loss': ..., 'logits': ...}}",
        )
    return explain_missing_inputs(context) or _explain_extra_columns(context, given)


def explain_missing_inputs(context: FailureContext) -> DataError | None:
    """Return the error for a required input that is not in the batch."""
    given = list(context.columns)
    lacking = find_missing_inputs(context.inner, given, context.left_out(), context.label_names)
    if lacking is None:
        return None
    return (
        _explain_absent_columns(context, [name for name in context.list_parameters() if name not in given]) or lacking
    )


def _explain_absent_columns(context: FailureContext, names: Sequence[str]) -> DataError | None:
    """Return the error for columns of the data set that the collator left out of the batch."""
    rows = context.rows()
    return find_absent_columns(context.dataset, rows, context.data, names) if rows else None


def _explain_extra_columns(context: FailureContext, given: list[str]) -> ForwardCallError | None:
    extra = [name for name in given if not context.takes(name)]
    if not extra:
        return None
    names = join_names(map(repr, extra))
    return ForwardCallError(
        what=f"{context.name}.forward does not take {names}",
        why=f"the batch has {join_names(given)}; forward takes {join_names(context.list_parameters())}",
        fix=f"drop {names} in the data_collator"
        if context.drops_columns
        else f"set remove_unused_columns=True, which drops {names}",
    )


def explain_missing_loss(context: FailureContext, returned: Sequence[str]) -> ModelOutputError | DataError:
    """Return the error for a model that returned no loss."""
    what = f"The model did not return a loss from the inputs, only the following keys: {','.join(returned)}"
    if context.label_names and not all(name in context.columns for name in context.label_names):
        wanted = [name for name in context.wanted_labels if name not in context.columns]
        return _explain_absent_columns(context, wanted) or explain_missing_labels(context, what)
    if not context.label_names and type(context.inner).__module__.startswith("transformers."):
        body = context.name.removesuffix("Model")
        return NoLossError(
            what=what,
            why=f"{context.name} has no head: it takes no labels and computes no loss",
            fix=f"use a model with a head, such as {body}ForSequenceClassification, or pass compute_loss_func=",
        )
    candidate = find_label_column(context.left_out(), ())
    if candidate is not None and not context.label_names:
        return NoLossError(
            what=what,
            why=f"it received {join_names(context.columns)}; column {candidate!r} is dropped: forward does not "
            "take it",
            fix=f"let forward take {candidate}=None and return {{'loss': ..., 'logits': ...}}",
        )
    return NoLossError(
        what=what,
        why=f"it received {join_names(context.columns)}, and its output has no 'loss'",
        fix=f"let forward return {{'loss': ..., 'logits': ...}}, or pass {_LOSS_FUNC}",
    )


def explain_missing_labels(context: FailureContext, what: str) -> MissingLabelsError:
    """Return the error for a batch without labels; it names the column that may hold them."""
    wanted = [name for name in context.wanted_labels if name not in context.columns]
    left_out = context.left_out()
    if wanted[0] in left_out:
        return MissingLabelsError(
            what=what,
            why=f"column {wanted[0]!r} is dropped: {context.name}.forward does not take it",
            fix=f"set label_names=[{wanted[0]!r}], which keeps it",
        )
    candidate = find_label_column([*context.columns, *left_out], wanted) if len(wanted) == 1 else None
    why = f"the batch has {join_names(context.columns)}, and not {join_names(map(repr, wanted))}"
    if candidate in left_out:
        why += f"; column {candidate!r} is dropped: forward does not take it"
    return MissingLabelsError(
        what=what,
        why=why,
        fix=f"rename {candidate!r} to {wanted[0]!r}" if candidate else _suggest_labels(context, wanted),
    )


def _suggest_labels(context: FailureContext, wanted: list[str]) -> str:
    if context.name.endswith(("ForCausalLM", "LMHeadModel")):
        return "pass data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False), which creates the labels"
    if context.name.endswith("ForMaskedLM"):
        return "pass data_collator=DataCollatorForLanguageModeling(tokenizer), which creates the labels"
    if getattr(context.config, "is_encoder_decoder", False):
        return "add labels to every row, the tokens of its target: tokenizer(text_target=...)['input_ids']"
    return f"add {join_names(map(repr, wanted))} to every row"


# Names of label columns in data sets that do not use the model's name.
USUAL_LABEL_NAMES = (
    "labels",
    "label",
    "label_ids",
    "target",
    "targets",
    "y",
    "y_true",
    "class",
    "classes",
    "category",
    "gold",
)


def find_label_column(names: Iterable[str], wanted: Iterable[str]) -> str | None:
    """Return the column that probably holds labels: it has a usual name, or one close to the wanted name.

    >>> find_label_column(["x", "target"], ["labels"]), find_label_column(["x", "lables"], ["labels"])
    ('target', 'lables')
    >>> find_label_column(["x", "text"], ["labels"])
    """
    names, wanted = list(names), [*wanted]
    for usual in USUAL_LABEL_NAMES:
        for name in names:
            if name.lower() == usual and name not in wanted:
                return name
    for name in names:
        if name not in wanted and difflib.get_close_matches(name.lower(), wanted, n=1, cutoff=0.8):
            return name
    return None
