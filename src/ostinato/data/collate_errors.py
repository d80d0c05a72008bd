"""Explain why rows do not make a batch: which row, which column, which value.

Nothing here runs before something has failed. A collator names rows by their positions in the batch. The loader,
which knows the numbers of the rows, builds the explanation again. Errors of collators outside Ostinato keep their type
and get a note.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from ..core.errors import DataError, OstinatoError, add_note
from .columns import advise_renaming, advise_tokenizing, guess_renames, has_columns, is_label, join_names, quote_names
from .dataset_errors import (
    MissingColumnError,
    NotARowError,
    RaggedError,
    RowNames,
    RowsError,
    WrongValueError,
    build_no_pad_token_error,
    find_collator_name,
    shorten,
    with_article,
)

_ONE_TENSOR = "makes one tensor of every column, and tensors hold numbers only"


def raise_collator_error(error: Exception, collator: Any, found: Sequence[Any], rows: RowNames) -> NoReturn:
    """Raise the error for rows that could not be collated: our own if the cause is known, else the collator's.

    The collator's own error gets a note. `found` are the rows as the collator received them.
    """
    if isinstance(error, RowsError) and error.rebuild is not None:
        raise error.rebuild(rows) or error from error.__cause__
    if not isinstance(error, OstinatoError):
        known = _find_transformers_fault(collator, found, rows)
        if known is not None:
            raise known from error
        add_note(error, f"ostinato: while {rows.name_all()} were collated by {find_collator_name(collator)}")
        outlier = _find_outlier(found, rows)
        if outlier is not None:
            add_note(error, f"ostinato: possible cause: {outlier}")
    raise error


def _find_outlier(found: Sequence[Any], rows: RowNames) -> str | None:
    """Return what is different in one of the rows, as a hint at the cause."""
    mappings = [isinstance(row, Mapping) for row in found]
    if not any(mappings):
        return None
    if not all(mappings):
        place = mappings.index(False)
        return build_not_a_row_error(found[place], place, rows).what
    for name in found[0]:
        lacking = [place for place, row in enumerate(found) if name not in row]
        if lacking:
            return _build_missing_column_error(found, rows, name, lacking[0]).what
        values = [row[name] for row in found]
        if any(find_odd_leaf(value) is ONLY_NUMBERS for value in values):
            problem = _find_wrong_value(values, rows, name, "") or _find_mixed_forms(values, rows, name)
            if problem is not None:
                return problem.what
    return None


# Collators that pad labels, and whether there must be one for every token.
_PADS_LABELS = {"DataCollatorForTokenClassification": True, "DataCollatorForSeq2Seq": False}


def _find_transformers_fault(collator: Any, found: Sequence[Any], rows: RowNames) -> DataError | None:
    """Return the known errors of transformers' own collators. What other collators require is not known here."""
    if str(getattr(collator, "__module__", "")).partition(".")[0] != "transformers":
        return None
    tokenizer, name = getattr(collator, "tokenizer", None), find_collator_name(collator)
    if tokenizer is None:
        return find_non_row(found, rows) or find_column_fault(found, rows, _list_columns(found), collator=name)
    known = find_padding_fault(tokenizer, found, rows, collator=name, labels=name == "DataCollatorWithPadding")
    if known is None and name in _PADS_LABELS:
        known = _find_token_label_fault(found, rows, collator=name, aligned=_PADS_LABELS[name])
    return known


# Columns that a collator left out ------------------------------------------------------------------------------------


def find_absent_columns(dataset: Any, indices: Sequence[int], source: str, names: Collection[str]) -> RowsError | None:
    """Return why these columns are missing in the batch, for a model that needs them; None if no reason is found.

    `default_data_collator` leaves out columns that are text or None in the first row of a batch. The rows are read
    again.

    >>> rows = [{"x": 1.0, "labels": None}, {"x": 2.0, "labels": 1}]
    >>> print(find_absent_columns(rows, [0, 1], "training set", ["labels"]))
    'labels' of row 0 of the training set is None
      why: it is the first row of its batch, so the batch has no 'labels'; other rows have int there
      fix: fill it in, or leave out the rows where row['labels'] is None
    """
    try:
        found = [dataset[index] for index in indices]
    except Exception:  # the rows can be read only once, or are a stream
        return None
    if not found or not all(isinstance(row, Mapping) for row in found):
        return None
    rows = RowNames(source, indices, has_columns(dataset))
    for name in names:
        for alias in (name, "label", "label_ids") if name == "labels" else (name,):
            problem = _find_absent_column(found, rows, alias)
            if problem is not None:
                return problem
        if name == "input_ids" and name not in found[0]:
            texts = [each for each, value in found[0].items() if isinstance(value, str) and not is_label(each)]
            return build_no_input_error(found[0], 0, rows, name) if texts else None
    return None


def _find_absent_column(found: Sequence[Mapping[str, Any]], rows: RowNames, name: str) -> RowsError | None:
    values = [row.get(name) for row in found]
    if all(value is None for value in values) and name not in found[0]:
        return None
    if isinstance(values[0], str) and not is_label(name) and name != "input_ids":
        return WrongValueError(
            what=f"column {name!r} of the {rows.source} holds text ({rows.name(0)}: {shorten(values[0])})",
            why="default_data_collator leaves out columns of text: tensors hold numbers only",
            fix="convert it to numbers in the data set",
        )
    if isinstance(values[0], str) or all(value is None for value in values):
        return _build_wrong_column_error(values, rows, name, values[0], "default_data_collator")
    if values[0] is not None:
        return None
    first = f"it is the first row of its batch, so the batch has no {name!r}; other rows have"
    usual = _describe_type(next(value for value in values if value is not None))
    if name in found[0]:
        return WrongValueError(
            what=f"{name!r} of {rows.full_name(0)} is None",
            why=f"{first} {usual} there",
            fix=f"fill it in, or leave out the rows where row[{name!r}] is None",
        )
    return MissingColumnError(
        what=f"{rows.full_name(0)} has no {name!r}",
        why=f"{first} it",
        fix=f"give every row its {name!r}, or leave such rows out",
    )


# Rows that are not dicts ---------------------------------------------------------------------------------------------


def find_non_row(found: Sequence[Any], rows: RowNames) -> RowsError | None:
    """Return the error for the first row that is not a mapping."""
    for place, row in enumerate(found):
        if not isinstance(row, Mapping):
            return build_not_a_row_error(row, place, rows)
    return None


def build_not_a_row_error(row: Any, place: int, rows: RowNames) -> NotARowError:
    """Return the error for a row that is not a dict, with what it is instead."""
    name = rows.full_name(place)
    if row is None:
        return NotARowError(
            what=f"{name} is None",
            why="the data set's __getitem__ returned nothing, or the list holds None",
            fix=f"let every row be a dict, such as {_format_example_row(rows)}",
        )
    if isinstance(row, str):
        return NotARowError(
            what=f"{name} is text ({shorten(row)}), not a dict",
            why="a model takes numbers, by name",
            fix="tokenize the texts: rows = [tokenizer(text, truncation=True) for text in texts]",
        )
    inside = f" of {_format_types(row)}" if isinstance(row, (tuple, list)) and 0 < len(row) <= 4 else ""
    return NotARowError(
        what=f"{name} is {with_article(row)}{inside}, not a dict",
        why="the model is called with keyword arguments, so every value needs a name",
        fix=f"let the data set return dicts, such as {_format_example_row(rows)}, or pass a data_collator that "
        "converts such rows to dicts",
    )


def _format_example_row(rows: RowNames) -> str:
    """Return an example row, with the names of the model where they are known."""
    inputs = [name for name in rows.columns if not is_label(name)]
    label = "labels" if not rows.columns or "labels" in rows.columns else None
    names = [inputs[0] if inputs else "input_ids", *([label] if label else [])]
    return "{" + ", ".join(f'"{name}": ...' for name in names) + "}"


def _format_types(values: Iterable[Any]) -> str:
    return " and ".join(type(value).__name__ for value in values)


# Columns that make no tensor -----------------------------------------------------------------------------------------


def find_column_fault(
    found: Sequence[Mapping[str, Any]],
    rows: RowNames,
    names: Iterable[str],
    *,
    collator: str,
    padded: Collection[str] = (),
) -> RowsError | None:
    """Return why the first faulty one of these columns makes no tensor. Lengths of `padded` columns may differ."""
    for name in names:
        lacking = [place for place, row in enumerate(found) if name not in row]
        if lacking:
            return _build_missing_column_error(found, rows, name, lacking[0])
        values = [row[name] for row in found]
        problem = _find_wrong_value(values, rows, name, collator) or _find_extra_dimension(values, rows, name)
        problem = problem or _find_mixed_forms(values, rows, name)
        if problem is None and name not in padded:
            problem = _find_ragged_values(found, rows, name, collator)
        if problem is not None:
            return problem
    return None


def _list_columns(found: Sequence[Any]) -> list[str]:
    """Return the columns of a batch, which are those of its first row."""
    return list(found[0]) if found and isinstance(found[0], Mapping) else []


def _build_missing_column_error(
    found: Sequence[Mapping[str, Any]], rows: RowNames, name: str, place: int
) -> RowsError:
    row, first = found[place], found[0]
    near = guess_renames([each for each in row if each not in first], [name])
    return MissingColumnError(
        what=f"{rows.full_name(place)} has no {name!r}",
        why=f"{rows.name(0)}, the first of the batch, has it; {rows.name(place)} has {join_names(row) or 'no column'}",
        fix=advise_renaming(near, table=False) if near else f"give every row its {name!r}, or leave such rows out",
    )


def _find_wrong_value(values: list[Any], rows: RowNames, name: str, collator: str) -> RowsError | None:
    """Return the error for text, None or an object in place of numbers."""
    odd = {place: leaf for place, value in enumerate(values) if (leaf := find_odd_leaf(value)) is not ONLY_NUMBERS}
    if not odd:
        return None
    place, leaf = next(iter(odd.items()))
    if len(odd) == len(values):
        return _build_wrong_column_error(values, rows, name, leaf, collator)
    usual = next(_describe_type(value) for number, value in enumerate(values) if number not in odd)
    holds = "is" if values[place] is leaf else "holds"
    found = "None" if leaf is None else f"text: {shorten(leaf)}" if isinstance(leaf, str) else with_article(leaf)
    return WrongValueError(
        what=f"{name!r} of {rows.full_name(place)} {holds} {found}",
        why=f"other rows have {usual} there, and tensors hold numbers only",
        fix=f"fill it in, or leave out the rows where row[{name!r}] is None"
        if leaf is None
        else "convert it to a number, or leave the row out",
    )


def _build_wrong_column_error(values: list[Any], rows: RowNames, name: str, leaf: Any, collator: str) -> RowsError:
    """Return the error for a column that has numbers in no row of the batch."""
    leave_out = f'dataset = dataset.remove_columns("{name}")' if rows.table else f"leave {name!r} out of the rows"
    if leaf is None:
        return WrongValueError(
            what=f"column {name!r} of the {rows.source} is None ({rows.name(0)} and all others of its batch)",
            why=f"{collator} {_ONE_TENSOR}",
            fix=f"fill in {name!r}; to predict without labels, {leave_out}" if is_label(name) else leave_out,
        )
    if not isinstance(leaf, str):
        kind = with_article(leaf)
        return WrongValueError(
            what=f"column {name!r} of the {rows.source} holds {kind} ({rows.name(0)}: {shorten(leaf)})",
            why=f"{collator} {_ONE_TENSOR}",
            fix=f"convert it to numbers in the data set, or {leave_out}",
        )
    if is_label(name):
        return WrongValueError(
            what=f"column {name!r} of the {rows.source} holds text ({rows.name(0)}: {shorten(leaf)}), not numbers",
            why="a loss is computed from class numbers",
            fix=_advise_numbering(name, table=rows.table or rows.numbers is None, one=values[0] is leaf),
        )
    if name == "input_ids":
        return WrongValueError(
            what=f"{name!r} of the {rows.source} is raw text ({rows.name(0)}: {shorten(leaf)})",
            why=f"{name!r} are token ids; the text was never tokenized",
            fix=advise_tokenizing(name, table=rows.table),
        )
    return WrongValueError(
        what=f"column {name!r} of the {rows.source} holds text ({rows.name(0)}: {shorten(leaf)})",
        why=f"{collator} {_ONE_TENSOR}",
        fix=f"{leave_out}, or set remove_unused_columns=True, which leaves out what the model does not take",
    )


def _advise_numbering(name: str, *, table: bool, one: bool) -> str:
    """Return how to number classes, where a row has `one` or several."""
    if not one:
        return f"number the classes: [classes.index(each) for each in row[{name!r}]]"
    if table:
        return f'number the classes: dataset = dataset.class_encode_column("{name}")'
    return f"number the classes: classes.index(row[{name!r}])"


def _find_extra_dimension(values: list[Any], rows: RowNames, name: str) -> RowsError | None:
    """Return the error for rows tokenized one by one with return_tensors, so that each is a batch of one."""
    shapes = [_find_shape(value) for value in values]
    if len(set(shapes)) == 1 or any(shape is None or len(shape) != 2 or shape[0] != 1 for shape in shapes):
        return None
    return RaggedError(
        what=f"{name!r} of {rows.full_name(0)} has the shape {shapes[0]} instead of {shapes[0][1:]}",  # type: ignore[index]
        why='each row is a batch of one, which is what tokenizer(text, return_tensors="pt") returns',
        fix=f"leave return_tensors out of the tokenizer call in the data set, or take row[{name!r}][0]",
    )


def _find_mixed_forms(values: list[Any], rows: RowNames, name: str) -> RowsError | None:
    """Return the error for a column with a single number in one row and a list in another."""
    shapes = [_find_shape(value) for value in values]
    other = next((place for place, shape in enumerate(shapes) if len(shape or ()) != len(shapes[0] or ())), None)
    if other is None or None in shapes:
        return None
    return WrongValueError(
        what=f"{name!r} of {rows.full_name(other)} is {_describe_form(values[other])}",
        why=f"{name!r} of {rows.name(0)} is {_describe_form(values[0])}, and all rows of a batch need the same form",
        fix=f"give {name!r} the same form in every row",
    )


def _find_ragged_values(
    found: Sequence[Mapping[str, Any]], rows: RowNames, name: str, collator: str
) -> RowsError | None:
    """Return the error for values of different shapes."""
    shapes: dict[Any, int] = {}
    for place, row in enumerate(found):
        shapes.setdefault(_find_shape(row[name]), place)
    if None in shapes:
        return RaggedError(
            what=f"{name!r} of {rows.full_name(shapes[None])} is a list of lists of different lengths",
            why="a tensor is rectangular",
            fix=f"pad {name!r} inside each row in the data set, or pass a data_collator that pads it",
        )
    if len(shapes) == 1:
        return None
    are_lengths = all(len(shape) == 1 for shape in shapes)
    misfit = _find_misaligned_row(found, rows, name) if are_lengths and is_label(name) else None
    if misfit is not None:
        return misfit
    seen = [f"{rows.name(place)} has {shape[0] if are_lengths else shape}" for shape, place in shapes.items()]
    return RaggedError(
        what=f"{name!r} has different {'lengths' if are_lengths else 'shapes'} in the rows of the {rows.source}",
        why=f"{', '.join(seen[:3])}; {collator} stacks them in one tensor and does not pad {name!r}"
        if are_lengths
        else f"{', '.join(seen[:3])}; {collator} stacks them in one tensor",
        fix=_advise_padding(found, name)
        if are_lengths
        else "convert all to one shape in the data set; images to one size and one number of channels",
    )


def _advise_padding(found: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return which collator pads such a column."""
    if not is_label(name):
        return "pass a tokenizer (processing_class=), or data_collator=DataCollatorWithPadding(tokenizer)"
    if all(count_entries(row.get("input_ids")) == count_entries(row[name]) for row in found):
        return (
            "pass data_collator=DataCollatorForTokenClassification(tokenizer), or for a language model "
            "DataCollatorForLanguageModeling(tokenizer, mlm=False)"
        )
    return "pass data_collator=DataCollatorForSeq2Seq(tokenizer, model=model), which pads labels of any length"


# Labels of tokens ----------------------------------------------------------------------------------------------------


def _find_misaligned_row(found: Sequence[Mapping[str, Any]], rows: RowNames, name: str) -> RowsError | None:
    """Return the error for a row with more or fewer labels than tokens; None if that holds for most of the rows."""
    pairs = [(count_entries(row.get("input_ids")), count_entries(row.get(name))) for row in found]
    odd = [place for place, (tokens, labels) in enumerate(pairs) if tokens != labels]
    if not odd or 2 * len(odd) > len(found) or any(None in pair for pair in pairs):
        return None
    tokens, labels = pairs[odd[0]]
    return RaggedError(
        what=f"{rows.full_name(odd[0])} has {tokens} tokens and {labels} {name}",
        why=f"other rows have as many {name} as tokens; {_guess_cause(tokens, labels)}",
        fix="align them; targets of another length than the input need DataCollatorForSeq2Seq(tokenizer, model=model)",
    )


def build_unlisted_labels_error(found: Sequence[Any], name: str, place: int, rows: RowNames) -> RowsError:
    """Return the error for a row whose labels are missing or not a list, where every token needs a label."""
    known = find_non_row(found, rows)
    if known is not None:
        return known
    values = found[place].get(name)
    if values is None:
        return MissingColumnError(
            what=f"{rows.full_name(place)} has no {name!r}",
            why="the first row of its batch has labels, so every row needs them",
            fix=f"give every row its {name!r}, or none of them",
        )
    if isinstance(values, str):
        return WrongValueError(
            what=f"{name!r} of {rows.full_name(place)} is text: {shorten(values)}",
            why="labels are numbers, one for every token",
            fix="tokenize targets too: tokenizer(text, text_target=target, truncation=True) returns them as labels",
        )
    return RaggedError(
        what=f"{name!r} of {rows.full_name(place)} is a single value: {values!r}",
        why="this collator expects one label for every token",
        fix="use DataCollatorWithPadding for one label per row",
    )


def _find_token_label_fault(
    found: Sequence[Mapping[str, Any]], rows: RowNames, *, collator: str, aligned: bool
) -> RowsError | None:
    """Return what is wrong with padded labels. With `aligned`, every token needs a label."""
    name = "label" if "label" in found[0] else "labels"
    if name not in found[0]:
        return None
    for place, row in enumerate(found):
        if _find_shape(row.get(name)) == ():
            return build_unlisted_labels_error(found, name, place, rows)
    known = find_column_fault(found, rows, [name], collator=collator, padded=[name])
    counts = [(count_entries(row.get("input_ids")) or 0, count_entries(row[name]) or 0) for row in found]
    place = max(range(len(counts)), key=lambda number: counts[number][1])
    too_many = aligned and counts[place][1] > max(tokens for tokens, _ in counts)
    return known or (build_misaligned_labels_error(rows, place, name, *counts[place]) if too_many else None)


def build_misaligned_labels_error(rows: RowNames, place: int, name: str, tokens: int, labels: int) -> RowsError:
    """Return the error for more or fewer labels than tokens, with the usual cause."""
    return RaggedError(
        what=f"{rows.full_name(place)} has {tokens} tokens and {labels} {name}",
        why=f"every token needs one; {_guess_cause(tokens, labels)}",
        fix="align the labels with tokenizer(words, is_split_into_words=True, truncation=True).word_ids(); "
        "-100 for tokens that do not count",
    )


def _guess_cause(tokens: int | None, labels: int | None) -> str:
    if (labels or 0) > (tokens or 0):
        return "usually the tokens were truncated and the labels were not"
    return "usually the labels of words were not aligned to sub-words"


# Padding -------------------------------------------------------------------------------------------------------------


def find_padding_fault(
    tokenizer: Any, found: Sequence[Any], rows: RowNames, *, collator: str, labels: bool = True, padding: Any = True
) -> DataError | None:
    """Return why a tokenizer could not pad these rows; None if no cause is found.

    `labels` says whether the tokenizer received the labels.
    """
    known = find_non_row(found, rows)
    if known is not None:
        return known
    names = _list_columns(found)
    inputs = list(getattr(tokenizer, "model_input_names", None) or ["input_ids"])
    if inputs[0] not in names:
        return build_no_input_error(found[0], 0, rows, inputs[0])
    if getattr(tokenizer, "pad_token", "") is None and getattr(padding, "value", padding) not in (False, "do_not_pad"):
        return build_no_pad_token_error(tokenizer)
    padded = {*inputs, "special_tokens_mask"}
    checked = [name for name in names if labels or not is_label(name)]
    known = find_column_fault(found, rows, checked, collator=collator, padded=padded)
    return known or _find_uneven_columns(found, rows, [name for name in checked if name in padded], inputs[0])


def build_no_input_error(row: Mapping[str, Any], place: int, rows: RowNames, wanted: str) -> RowsError:
    """Return the error for a missing input column: the text was not tokenized, or the column has another name."""
    names = list(row)
    texts = [name for name in names if isinstance(row[name], str) and not is_label(name)]
    if texts:
        return MissingColumnError(
            what=f"the {rows.source} looks like raw text: {rows.name(place)} has {join_names(names)}, no {wanted!r}",
            why=f"{quote_names(texts)} holds text that was never tokenized ({shorten(row[texts[0]])})",
            fix=advise_tokenizing(texts[0], table=rows.table),
        )
    rename = guess_renames(names, [wanted])
    return MissingColumnError(
        what=f"{rows.full_name(place)} has no {wanted!r}",
        why=f"the collator pads {wanted!r}; the row has {join_names(names) or 'no column'}",
        fix=advise_renaming(rename, table=rows.table)
        if rename
        else f"tokenize the data, so that rows have {wanted!r}",
    )


def _find_uneven_columns(
    found: Sequence[Mapping[str, Any]], rows: RowNames, names: list[str], main: str
) -> RowsError | None:
    """Return the error for a mask that is longer or shorter than its tokens."""
    for place, row in enumerate(found):
        for name in names:
            if count_entries(row[name]) != count_entries(row[main]):
                counts = f"{count_entries(row[main])} {main} and {count_entries(row[name])} {name}"
                return RaggedError(
                    what=f"{rows.full_name(place)} has {counts}",
                    why=f"{name!r} has one value for each of {main!r}, so both must have the same length",
                    fix="take both from the same call of the tokenizer, and truncate both to the same length",
                )
    return None


# Values --------------------------------------------------------------------------------------------------------------

ONLY_NUMBERS = object()  # sentinel: the value holds nothing but numbers


def find_odd_leaf(value: Any) -> Any:
    """Return the first part of a value that is not a number; NUMBERS if there is none."""
    if isinstance(value, torch.Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "biufc"):
        return ONLY_NUMBERS
    if isinstance(value, (bool, int, float, complex, np.number, np.bool_)):
        return ONLY_NUMBERS
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        return value
    return next((leaf for part in value if (leaf := find_odd_leaf(part)) is not ONLY_NUMBERS), ONLY_NUMBERS)


def count_entries(value: Any) -> int | None:
    """Return the number of entries of a value; None for a single value."""
    shape = _find_shape(value)
    return shape[0] if shape else None


def _find_shape(value: Any) -> tuple[int, ...] | None:
    """Return the shape of a value; None for ragged lists."""
    try:
        return tuple(np.shape(value))
    except ValueError:
        return None


def _describe_form(value: Any) -> str:
    shape = _find_shape(value)
    if not shape:
        return f"a single value ({shorten(value)})"
    return f"a list of {shape[0]}" if len(shape) == 1 else f"of the shape {shape}"


def _describe_type(value: Any) -> str:
    """Return the type of a value in words: `int`, `list of int`."""
    if isinstance(value, (list, tuple)) and value:
        return f"{type(value).__name__} of {_describe_type(value[0])}"
    return type(value).__name__
