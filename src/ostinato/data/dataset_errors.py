"""Errors in data, and the checks that need to read no row, or run before any is read.

    RowsError(DataError)                               rows that do not make a batch
    ├── NotARowError(TypeError, AttributeError)        a row that is not a dict
    ├── MissingColumnError(KeyError)                   a row without a column that other rows have
    ├── WrongValueError(TypeError, RuntimeError)       text, None or an object where numbers are expected
    └── RaggedError(RuntimeError)                      values of different shapes
    NotADataSetError(DataError, TypeError, KeyError)   an object without numbered rows
    CollatorError(DataError, TypeError)                a collator that makes no batches
    NoPadTokenError(DataError, ConfigError)            a tokenizer that cannot pad
    MissingInputError(DataError, TypeError)            a model that does not receive a required input

Each error is also of the built-in type that transformers, torch or Python raises in its place.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..core.errors import ConfigError, DataError, add_note
from .columns import (
    RemoveColumnsCollator,
    advise_renaming,
    advise_tokenizing,
    find_removed_columns,
    guess_renames,
    has_columns,
    is_label,
    join_names,
    list_forward_parameters,
    quote_names,
)
from .sizes import has_length

# The errors ----------------------------------------------------------------------------------------------------------


class RowsError(DataError):
    """Rows that do not make a batch. Raised by collators, which know only the positions of rows in the batch.

    `rebuild` builds the same error with the numbers of the rows in the data set, which the loader knows.
    """

    rebuild: Callable[[RowNames], DataError | None] | None = None

    def __str__(self) -> str:  # KeyError has a format of its own
        return Exception.__str__(self)


class NotARowError(RowsError, TypeError, AttributeError):
    """A row that is not a dict."""


class MissingColumnError(RowsError, KeyError):
    """A row without a column that the other rows of its batch have."""


class WrongValueError(RowsError, TypeError, RuntimeError):
    """Text, None or an object where numbers are expected."""


class RaggedError(RowsError, RuntimeError):
    """Values of one column that have different shapes."""


class NotADataSetError(DataError, TypeError, KeyError):
    """An object without numbered rows."""

    def __str__(self) -> str:  # KeyError has a format of its own
        return Exception.__str__(self)


class CollatorError(DataError, TypeError):
    """A collator that makes no batches."""


class NoPadTokenError(DataError, ConfigError):
    """A tokenizer that has no token for padding short rows."""


class MissingInputError(DataError, TypeError):
    """A model that does not receive a required input."""


# Names of rows -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowNames:
    """The names of rows in messages: by position in the batch, or by number in the data set.

    >>> RowNames().full_name(1), RowNames("training set", [40, 7]).full_name(1)
    ('row 1 of the batch', 'row 7 of the training set')
    """

    source: str = "batch"
    numbers: Sequence[int] | None = None
    table: bool = False  # whether the data set has methods that rename and map columns
    columns: Collection[str] = ()  # the columns that the model takes, where they are known

    def name(self, place: int) -> str:
        return f"row {place if self.numbers is None else _format_index(self.numbers[place])}"

    def full_name(self, place: int) -> str:
        return f"{self.name(place)} of the {self.source}"

    def repeat(self, times: int) -> RowNames:
        """Return the names for the choices of these rows: each row is repeated."""
        numbers = None if self.numbers is None else [number for number in self.numbers for _ in range(times)]
        return replace(self, numbers=numbers)

    def name_all(self) -> str:
        numbers = list(self.numbers or ())
        if len(numbers) == 1:
            return self.full_name(0)
        shown = ", ".join(map(_format_index, numbers[:8])) + (
            f", ... ({len(numbers)} in all)" if len(numbers) > 8 else ""
        )
        return f"rows {shown} of the {self.source}"


def _format_index(index: Any) -> str:
    """Return the index of a row as text: a number, a tensor that holds one, or any key that the data set accepts."""
    try:
        return str(operator.index(index))
    except TypeError:
        return repr(index)


ErrorT = TypeVar("ErrorT", bound=DataError | None)


def build_rows_error(build: Callable[[RowNames], ErrorT]) -> ErrorT:
    """Return a collator's error that names rows by position; the loader builds it again with the rows' numbers."""
    error = build(RowNames())
    if isinstance(error, RowsError):
        error.rebuild = build
    return error


# Rows that cannot be read --------------------------------------------------------------------------------------------


def raise_read_error(error: Exception, rows: RowNames, dataset: Any, *, by: str = "") -> NoReturn:
    """Raise the data set's own error for a row that could not be read, with a note that names the row."""
    were = "were" if len(rows.numbers or ()) > 1 else "was"
    add_note(error, f"ostinato: while {rows.name_all()}{_describe_length(dataset, error)} {were} read{by}")
    missing = error.args[0] if isinstance(error, KeyError) and error.args else None
    if isinstance(missing, str) and missing in find_removed_columns(dataset):
        add_note(
            error,
            f"ostinato: column {missing!r} was left out, because the model's forward does not take it; if a "
            "transform needs it, set remove_unused_columns=False",
        )
    elif isinstance(dataset, Mapping) and missing is not None:
        add_note(error, f"ostinato: the {rows.source} is a dict, and rows are read by number: list(rows.values())")
    raise error


def _describe_length(dataset: Any, error: Exception) -> str:
    if not has_length(dataset):
        return ""
    return f" (its __len__ is {len(dataset)})" if isinstance(error, IndexError) else f" ({len(dataset)} rows)"


def raise_stream_error(error: Exception, source: str, count: int) -> NoReturn:
    """Raise the error of a stream, with a note: its rows have no numbers, but they are counted."""
    add_note(error, f"ostinato: after {count} row{'' if count == 1 else 's'} of the {source} had been read")
    raise error


def raise_generator_error(error: Exception) -> NoReturn:
    """Raise the error of a generator, with a note: a generator ends with the exception that it raises."""
    add_note(
        error,
        "ostinato: skip_bad_rows=True cannot continue after this error: a generator (a function with yield) ends when "
        "it raises. Catch the exception inside, or let __iter__ return an iterator with a __next__ method",
    )
    raise error


# Objects that are no data set ----------------------------------------------------------------------------------------


def check_data_set(dataset: Any, source: str, *, may_be_empty: bool = False) -> None:
    """Raise unless an object passed as a data set has rows, or may have."""
    if isinstance(dataset, (str, bytes, PathLike)):
        raise NotADataSetError(
            what=f"the {source} is a {type(dataset).__name__} ({shorten(dataset)}), not a data set",
            why="a data set is not loaded by name or path",
            fix='load it first, for instance datasets.load_dataset("csv", data_files="train.csv")["train"]',
        )
    if isinstance(dataset, type):
        raise NotADataSetError(
            what=f"the {source} is the class {dataset.__name__}, not a data set",
            why="a class has no rows; its instances have",
            fix=f"pass an instance: {dataset.__name__}(...)",
        )
    if isinstance(dataset, DataLoader) and dataset.batch_sampler is not None:
        raise NotADataSetError(
            what=f"the {source} is a DataLoader",
            why="it yields batches, and the trainer collates rows itself",
            fix="pass its data set (loader.dataset), or override get_train_dataloader or get_eval_dataloader",
        )
    if all(getattr(dataset, name, None) is not None for name in ("iloc", "columns", "to_dict")):
        raise NotADataSetError(
            what=f"the {source} is a pandas {type(dataset).__name__}",
            why="its [0] is a column, not a row",
            fix="pass datasets.Dataset.from_pandas(frame), or frame.to_dict('records')",
        )
    if isinstance(dataset, Mapping):
        _check_mapping(dataset, source)
    if not may_be_empty and is_empty(dataset):
        raise build_empty_set_error(source)


def is_empty(dataset: Any) -> bool:
    """Return whether a data set is known to have no rows, or a loader no batches."""
    return has_length(dataset) and len(dataset) == 0


def build_empty_set_error(source: str) -> DataError:
    """Return the error for a data set without rows."""
    return DataError(
        what=f"the {source} is empty",
        why="it has 0 rows",
        fix="check the split, the filter or the slice that produced it",
    )


def build_empty_source_error(source: str) -> DataError:
    """Return the error for a stream or a loader that yields no rows."""
    return DataError(
        what=f"the {source} yielded no rows",
        why="it is empty, or it was read to its end before: every evaluation reads it from the start",
        fix="check its contents, and let its __iter__ begin at the first row each time",
    )


def _check_mapping(dataset: Mapping[Any, Any], source: str) -> None:
    """Raise for a dict of splits or of columns, which have names; rows have numbers."""
    parts = list(dataset.values())
    if 0 in dataset or any(isinstance(part, Mapping) for part in parts):
        return  # keys are row numbers, or names that a sampler may yield
    names = list(dataset)
    if parts and all(map(_is_data_set, parts)):
        wanted = {"training set": "train", "evaluation set": "validation"}.get(source, "test")
        choice = next((name for name in (wanted, "test") if name in names), names[0])
        raise NotADataSetError(
            what=f"the {source} is a dict of data sets: {quote_names(names)}",
            why="rows are read by number, and these are names of splits",
            fix=f"pass one of them: dataset[{choice!r}]",
        )
    if parts:
        raise NotADataSetError(
            what=f"the {source} is a dict of columns: {quote_names(names)}",
            why="rows are read by number; a slice like dataset[:100] or tokenizer(texts) returns columns",
            fix="convert them to rows: datasets.Dataset.from_dict(dict(columns)); instead of a slice, use "
            "dataset.select(range(100))",
        )


def _is_data_set(part: Any) -> bool:
    """Return whether a value of a dict is a data set rather than a column."""
    if isinstance(part, (list, tuple)):
        return bool(part) and isinstance(part[0], Mapping)
    return has_columns(part) or not isinstance(part, (np.ndarray, torch.Tensor, str, int, float, type(None)))


def check_addressable(dataset: Any, source: str) -> None:
    """Raise unless a data set with numbered rows has a length."""
    if not has_length(dataset):
        name = type(dataset).__name__
        raise NotADataSetError(
            what=f"the {source} ({name}) has __getitem__ but no __len__",
            why="rows are read by number, from 0 to the length",
            fix=f"give {name} a __len__, or make it an IterableDataset with __iter__",
        )


def build_not_a_data_set_error(dataset: Any, source: str) -> NotADataSetError:
    """Return the error for an object that has neither numbered rows nor an iterator over rows."""
    why = "it has neither __getitem__ nor __iter__"
    if inspect.isroutine(dataset):
        return NotADataSetError(
            what=f"the {source} is the function {dataset.__name__}",
            why=why,
            fix="call it, and pass what it returns",
        )
    return NotADataSetError(
        what=f"the {source} is {with_article(dataset)}, which is not a data set",
        why=why,
        fix="pass a list of dicts, a torch Dataset or IterableDataset, or a datasets.Dataset",
    )


def build_empty_sampler_error(source: str) -> DataError:
    """Return the error for an empty sampler."""
    return DataError(
        what=f"the sampler of the {source} yields no rows",
        why="its length is 0, although the data set has rows",
        fix="check the indices or weights of the sampler",
    )


def build_no_batches_error(source: str, batch_size: int | None, *, drop_last: bool) -> DataError:
    """Return the error for a pass over the data that yields no batch."""
    if drop_last:
        return DataError(
            what=f"the {source} yielded no batch",
            why=f"it ended before a batch of {batch_size} rows was full, and dataloader_drop_last=True drops the rest",
            fix="set dataloader_drop_last=False, or a smaller batch size",
        )
    return DataError(
        what=f"the {source} yielded no batch",
        why="it ended before its first row",
        fix="check its files, its filter or its sampler; a generator can be read only once",
    )


# Collators and tokenizers --------------------------------------------------------------------------------------------


def check_collator(collator: Any) -> None:
    """Raise for a class in place of a collator: calling it with rows would construct an object."""
    while isinstance(collator, RemoveColumnsCollator):
        collator = collator.data_collator
    if not isinstance(collator, type) or issubclass(collator, Mapping):
        return
    if any("__call__" in vars(each) for each in collator.__mro__):
        raise CollatorError(
            what=f"data_collator is the class {collator.__name__}, not an instance of it",
            why="it is called with rows, and a class would take them as the arguments of a new instance",
            fix=f"pass data_collator={collator.__name__}(...)",
        )


def find_collator_name(collator: Any) -> str:
    """Return the name of a collator: a function, an object or a `functools.partial`."""
    inner = getattr(collator, "func", collator)
    return getattr(inner, "__qualname__", None) or type(inner).__name__


def find_batch_fault(batch: Any, collator: Any) -> CollatorError | None:
    """Return why a batch cannot be passed to a model by name, after a failed call; None if it is a mapping."""
    if isinstance(batch, Mapping):
        return None
    return CollatorError(
        what=f"{find_collator_name(collator)} returned {'None' if batch is None else with_article(batch)}, not a dict",
        why="the model is called with keyword arguments, model(**batch)",
        fix='let the data_collator return a dict of tensors, such as {"input_ids": ..., "labels": ...}',
    )


def build_empty_batch_error(batch: Any, source: str, number: int, rows: Sequence[int] | None) -> DataError:
    """Return the error for a batch without rows; `rows` are those it was made of, where they are known."""
    shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in batch.items() if isinstance(value, Tensor))
    made_of = f" of rows {', '.join(map(str, rows[:8]))}{', …' if len(rows) > 8 else ''}" if rows else ""
    return DataError(
        what=f"batch {number} of the {source} has no rows{f': {shapes}' if shapes else ', and no columns'}",
        why=f"the data_collator, or the loader, built it{made_of}",
        fix="let the data_collator keep at least one row, and filter the rows that it would drop before training: "
        "dataset.filter(...)",
    )


def build_no_rows_error() -> DataError:
    """Return the error for collating an empty list of rows."""
    return DataError(
        what="a batch without rows cannot be collated",
        why="the columns of a batch are those of its first row",
        fix="check the sampler or the batch sampler: it yielded an empty list of indices",
    )


def build_no_pad_token_error(tokenizer: Any) -> NoPadTokenError:
    """Return the error for a tokenizer without a pad token."""
    name = getattr(tokenizer, "name_or_path", None) or type(tokenizer).__name__
    return NoPadTokenError(
        what=f"the tokenizer ({name}) has no pad token, so rows cannot be padded to one length",
        why="the rows of a batch have the same length; short rows are filled with the pad token",
        fix="set tokenizer.pad_token = tokenizer.eos_token"
        if getattr(tokenizer, "eos_token", None) is not None
        else "tokenizer.add_special_tokens({'pad_token': '[PAD]'}), and model.resize_token_embeddings(len(tokenizer))",
    )


# Missing inputs of the model -----------------------------------------------------------------------------------------

# These describe the input and are not inputs themselves.
_COMPANIONS = ("attention_mask", "token_type_ids", "position_ids", "decoder_attention_mask", "head_mask")


def find_missing_inputs(
    model: Any, given: Collection[str], dropped: Collection[str], label_names: Collection[str]
) -> DataError | None:
    """Return which inputs of the model's forward are in no column, after a failed forward; None if none is missing.

    `given` are the columns of the batch, `dropped` the columns of the data set that are not in it.

    >>> class Model:
    ...     def forward(self, x, labels=None): ...
    >>> print(find_missing_inputs(Model(), ["labels"], ["inputs"], ["labels"]))
    Model.forward needs 'x', which no column supplies
      why: the batch has labels; the data set also has inputs, which forward does not take
      fix: rename 'inputs' to 'x', or let a data_collator add 'x'
    """
    parameters = list_forward_parameters(model)
    lacking = [name for name, each in parameters.items() if each.default is each.empty and name not in given]
    inputs = [name for name in parameters if not is_label(name) and name not in label_names]
    if not lacking and inputs and not any(name in given and name not in _COMPANIONS for name in inputs):
        main = getattr(model, "main_input_name", None)
        lacking = [main if main in inputs else inputs[0]]
    if not lacking:
        return None
    has = f"the batch has {join_names(given)}" if given else "the batch is empty"
    if dropped:
        has += f"; the data set also has {join_names(dropped)}, which forward does not take"
    return MissingInputError(
        what=f"{type(model).__name__}.forward needs {quote_names(lacking)}, which no column supplies",
        why=has,
        fix=_advise_missing_inputs(lacking, [*dropped, *(name for name in given if name not in parameters)]),
    )


def _advise_missing_inputs(lacking: list[str], spare: list[str]) -> str:
    """Return how the missing inputs can be supplied."""
    rename = guess_renames(spare, lacking)
    if not rename and len(spare) == len(lacking) == 1 and lacking[0] != "input_ids":
        rename = {spare[0]: lacking[0]}
    add = f"let a data_collator add {quote_names(lacking)}"
    if rename:
        return f"{advise_renaming(rename, table=False)}, or {add}"
    if "input_ids" in lacking and spare:
        return f"if {spare[0]!r} is text, tokenize it: {advise_tokenizing(spare[0], table=True)}"
    return f"add {quote_names(lacking)} to the rows, or {add}"


# Messages ------------------------------------------------------------------------------------------------------------


def with_article(value: Any) -> str:
    """Return the type of a value with its article."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def shorten(value: Any) -> str:
    """Return the representation of a value, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]}...{text[-1]}"
