"""Select the columns of a data set that reach the model: the parameters of its forward, and the labels."""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import get_worker_info

from ..core.errors import DataError
from ..core.notices import note_once
from .sizes import is_iterable

_COLLATED_INTO_LABELS = ("label", "label_ids")  # no model takes these; collators turn them into `labels`
_SPAN_LABELS = ("start_positions", "end_positions")  # the labels of question answering

# Models that take one of these compute their output from it: labels alone are not enough for them.
_MAIN_INPUTS = ("input_ids", "pixel_values", "input_values", "input_features")

# Other usual names of the columns that models take.
_ALIASES = {
    "input_ids": ("tokens", "token_ids", "ids", "input", "inputs", "input_id", "encoded"),
    "attention_mask": ("mask", "masks", "attn_mask", "attention"),
    "labels": ("target", "targets", "y", "class", "classes", "category", "output", "outputs"),
    "pixel_values": ("pixels",),
}


# What the model takes ------------------------------------------------------------------------------------------------


def unwrap_model(model: Any) -> Any:
    """Return the model inside wrappers such as `torch.compile` and PEFT's adapters: its forward names the inputs."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None:
            get_base_model = getattr(model, "get_base_model", None)
            inner = get_base_model() if callable(get_base_model) else None
        if inner is None or inner is model:
            return model
        model = inner


def find_signature_columns(model: Any, label_names: Iterable[str]) -> list[str]:
    """Return the columns that may reach the model: parameters of its forward, and what becomes labels.

    >>> class Model:
    ...     def forward(self, x, labels=None): ...
    >>> find_signature_columns(Model(), ["labels"])
    ['x', 'labels', 'label', 'label_ids']
    """
    names = [*list_forward_parameters(model), *_COLLATED_INTO_LABELS, *label_names]
    return list(dict.fromkeys(names))


def find_labels(model_class: type) -> list[str]:
    """Return the parameters of a model's forward that are labels.

    >>> class Model:
    ...     def forward(self, x, labels=None, next_sentence_label=None): ...
    >>> find_labels(Model)
    ['labels', 'next_sentence_label']
    """
    spans = _SPAN_LABELS if "QuestionAnswering" in model_class.__name__ else ()
    return [name for name in _list_parameters(model_class.forward) if "label" in name or name in spans]  # type: ignore[attr-defined]


def find_default_labels(model: Any) -> list[str]:
    """Return the label columns of a model, for use when `label_names` is not given."""
    return find_labels(type(unwrap_model(model)))


def can_return_loss(model_class: type) -> bool:
    """Return whether a model computes a loss without labels, as contrastive ones do: `return_loss=True` by default."""
    parameter = inspect.signature(model_class.forward).parameters.get("return_loss")  # type: ignore[attr-defined]
    return parameter is not None and parameter.default is True


def list_forward_parameters(model: Any) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a model's forward."""
    return _list_parameters(unwrap_model(model).forward)


def is_label(name: str) -> bool:
    """Return whether a column holds labels, judged by its name."""
    return isinstance(name, str) and ("label" in name or name in _SPAN_LABELS)


def _list_parameters(forward: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the named parameters; `*args` and `**kwargs` name no column."""
    unnamed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(forward).parameters.values()
    return {each.name: each for each in parameters if each.kind not in unnamed and each.name != "self"}


# What the data set has -----------------------------------------------------------------------------------------------


def has_columns(dataset: Any) -> bool:
    """Return whether columns can be removed from the data set itself, as from a `datasets.Dataset`."""
    names = getattr(dataset, "column_names", None)
    return isinstance(names, (list, tuple)) and callable(getattr(dataset, "remove_columns", None))


def remove_unused_columns(
    dataset: Any, columns: Collection[str], description: str | None = None, *, model_name: str = "the model"
) -> Any:
    """Return the data set without the columns that the model does not take. Its format (torch, numpy, ...) stays.

    Data sets without named columns are returned unchanged; `RemoveColumnsCollator` filters their rows.
    """
    if not has_columns(dataset):
        return dataset
    left_out = [name for name in dataset.column_names if name not in columns]
    if not left_out:
        return dataset
    kept = [name for name in dataset.column_names if name in columns]
    choice = ColumnChoice(kept, left_out, columns, format_set_name(description), model_name)
    choice.check(_find_text_columns(dataset, left_out), table=True, transformed=has_transform(dataset))
    note_once(choice.describe())
    rest = dataset.remove_columns(left_out)
    _record_removed(rest, dataset, left_out)
    return rest


def has_transform(dataset: Any) -> bool:
    """Return whether a `datasets.Dataset` computes rows on reading, so that a single column may not be readable."""
    return (getattr(dataset, "format", None) or {}).get("type") == "custom"


_removed_columns: WeakKeyDictionary[Any, tuple[Any, tuple[str, ...]]] = WeakKeyDictionary()


def _record_removed(rest: Any, dataset: Any, names: list[str]) -> None:
    """Record which columns were removed: one may hold lengths, or be needed by a transform."""
    with suppress(TypeError):  # not usable as a key: errors then have less detail
        _removed_columns[rest] = dataset, tuple(names)


def find_removed_columns(dataset: Any) -> tuple[str, ...]:
    """Return the columns that `remove_unused_columns` removed to make this data set."""
    with suppress(TypeError):
        return _removed_columns.get(dataset, (dataset, ()))[1]
    return ()


def restore_columns(dataset: Any) -> Any:
    """Return the data set from which `remove_unused_columns` made this one, or this one itself."""
    with suppress(TypeError):
        return _removed_columns.get(dataset, (dataset, ()))[0]
    return dataset


def choose_columns(
    dataset: Any, columns: Collection[str], description: str | None = None, *, removes: bool, model_name: str
) -> ColumnChoice:
    """Return the decision that `remove_unused_columns` makes. For rows without named columns, the first row decides.

    >>> choice = choose_columns([{"x": 1, "note": ""}], ["x"], removes=True, model_name="Model")
    >>> choice.kept, choice.left_out, choice.why
    (['x'], ['note'], 'Model.forward does not take note')
    """
    names = list(dataset.column_names) if has_columns(dataset) else _read_first_row_names(dataset)
    left_out = [name for name in names if removes and name not in columns]
    kept = [name for name in names if name not in left_out]
    return ColumnChoice(kept, left_out, columns, format_set_name(description), model_name)


def _read_first_row_names(dataset: Any) -> list[str]:
    """Return no names for a stream, which would lose the row, and for rows that are not dicts."""
    row = None if is_iterable(dataset) or not len(dataset) else dataset[0]
    return list(row) if isinstance(row, Mapping) else []


class RemoveColumnsCollator:
    """Remove from every row what the model does not take, then collate.

    Args:
        data_collator: The collator that receives the remaining columns.
        signature_columns: The columns to keep.
        logger: Where the removed columns are reported; by default, as a notice.
        model_name: The name of the model in that report.
        description: The name of the data set in that report.

    >>> RemoveColumnsCollator(list, ["x"])([{"x": 1, "comment": "..."}])
    [{'x': 1}]
    """

    def __init__(
        self,
        data_collator: Callable[[list[Any]], Any],
        signature_columns: Collection[str],
        logger: logging.Logger | None = None,
        model_name: str | None = None,
        description: str | None = None,
    ) -> None:
        self.data_collator = data_collator
        self.signature_columns = signature_columns
        self.logger = logger
        self.model_name = model_name
        self.description = description
        self.message_logged = False
        self._kept = frozenset(signature_columns)

    def __call__(self, features: list[Any]) -> Any:
        return self.data_collator(self.prepare_rows(features))

    def prepare_rows(self, features: list[Any]) -> list[Any]:
        """Return the rows as the inner collator receives them.

        Args:
            features: The rows.

        Returns:
            The rows without other columns; what is not a mapping is left as it is.
        """
        has_only = self._kept.issuperset  # most rows have nothing to remove, and cost no call
        return [
            row if not isinstance(row, (dict, Mapping)) or has_only(row) else self._filter_row(row) for row in features
        ]

    def _filter_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        if not self.message_logged:
            self._report(row)
        return {name: value for name, value in row.items() if name in self._kept}

    def _report(self, row: Mapping[str, Any]) -> None:
        """Report once what is left out; raise an error if nothing useful is left."""
        self.message_logged = True
        kept = [name for name in row if name in self._kept]
        left_out = [name for name in row if name not in self._kept]
        choice = ColumnChoice(
            kept, left_out, self.signature_columns, format_set_name(self.description), self.model_name or "the model"
        )
        choice.check([name for name in left_out if isinstance(row[name], str)])
        worker = get_worker_info()
        if worker is not None and worker.id > 0:
            return  # only the first worker reports
        if self.logger is not None:
            self.logger.info(choice.describe())
        else:
            note_once(choice.describe())


# Messages ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnChoice:
    """The columns of a data set, and which of them the model takes."""

    kept: list[str]
    left_out: list[str]
    columns: Collection[str]
    source: str
    model_name: str

    @property
    def why(self) -> str:
        """The reason why some columns do not reach the model."""
        if not self.left_out:
            return "nothing is left out"
        return f"{self.model_name}.forward does not take {', '.join(map(str, self.left_out))}"

    def describe(self) -> str:
        """Return one line with what is kept, what is left out, and why."""
        return (
            f"columns of the {self.source}: kept {', '.join(self.kept)}; left out "
            f"{', '.join(map(str, self.left_out))}, which {self.model_name}.forward does not take "
            "(remove_unused_columns=False keeps them)"
        )

    def check(self, texts: list[str], *, table: bool = False, transformed: bool = False) -> None:
        """Raise unless something reaches the model, and more than labels if it takes tokens, images or sounds.

        `texts` are the columns left out that hold text. A `transformed` data set computes its columns on reading.
        """
        main = next((name for name in _MAIN_INPUTS if name in self.columns), None)
        too_little = main is not None and not transformed and all(is_label(name) for name in self.kept)
        if self.kept and not too_little:
            return
        has, reaching = join_names([*self.kept, *self.left_out]), "no column"
        if self.kept:
            reaching = f"only {quote_names(self.kept)}"
        if texts and main == "input_ids" and not transformed:
            raise DataError(
                what=f"the {self.source} looks like raw text: {reaching} reaches {self.model_name}",
                why=f"{quote_names(texts)} holds text that was never tokenized; {self.model_name} takes {main}",
                fix=advise_tokenizing(texts[0], table=table),
            )
        raise DataError(
            what=f"{reaching} of the {self.source} reaches {self.model_name}",
            why=f"the data set has {has}; {self.model_name}.forward takes {self._list_taken()}",
            fix=self._advise(table=table, transformed=transformed),
        )

    def _list_taken(self) -> str:
        return join_names(name for name in self.columns if name not in _COLLATED_INTO_LABELS)

    def _advise(self, *, table: bool, transformed: bool) -> str:
        if transformed:
            return "set remove_unused_columns=False: the data set's transform computes the model's columns from these"
        rename = guess_renames(self.left_out, [name for name in self.columns if name not in self.kept])
        if rename:
            return advise_renaming(rename, table=table)
        return "rename them, or set remove_unused_columns=False and let a data_collator compute the model's columns"


def format_set_name(description: str | None, default: str = "data set") -> str:
    """Return the name of a data set for messages: "Training" is the training set, "test" the prediction set.

    >>> format_set_name("Evaluation"), format_set_name("test"), format_set_name(None)
    ('evaluation set', 'prediction set', 'data set')
    """
    if not description:
        return default
    word = description[:1].lower() + description[1:]
    return f"{'prediction' if word == 'test' else word} set"


def guess_renames(names: Iterable[str], columns: Collection[str]) -> dict[str, str]:
    """Return which column was probably meant as which parameter.

    >>> guess_renames(["tokens", "attention_masks", "idx"], ["input_ids", "attention_mask"])
    {'tokens': 'input_ids', 'attention_masks': 'attention_mask'}
    """
    found: dict[str, str] = {}
    free = [name for name in columns if name not in _COLLATED_INTO_LABELS]
    for name in filter(lambda name: isinstance(name, str), names):
        meant = [each for each in free if name.lower() in _ALIASES.get(each, ())]
        near = meant or difflib.get_close_matches(name, free, n=1, cutoff=0.6)
        if near:
            found[name] = near[0]
            free.remove(near[0])
    return found


def advise_renaming(names: Mapping[str, str], *, table: bool) -> str:
    """Return how to rename columns: as code if the data set has a method for it, in words otherwise."""
    if table:
        pairs = ", ".join(f'"{old}": "{new}"' for old, new in names.items())
        return f"dataset = dataset.rename_columns({{{pairs}}})"
    return "rename " + ", ".join(f"{old!r} to {new!r}" for old, new in names.items())


def advise_tokenizing(column: str, *, table: bool) -> str:
    """Return how to tokenize a column of text: in one call if the data set has a method for it, else row by row."""
    if table:
        return f'dataset = dataset.map(lambda row: tokenizer(row["{column}"], truncation=True), batched=True)'
    return f'replace every row by {{**row, **tokenizer(row["{column}"], truncation=True)}}'


def quote_names(names: Iterable[Any]) -> str:
    """Return the names, quoted and joined.

    >>> quote_names(["a", "b", "c"])
    "'a', 'b' and 'c'"
    """
    *most, last = [repr(name) for name in names]
    return f"{', '.join(most)} and {last}" if most else last


def join_names(names: Iterable[Any], most: int = 8) -> str:
    """Return the names, joined, and shortened to `most` of them.

    >>> join_names("abcd", 2)
    'a, b and 2 more'
    """
    every = [str(name) for name in names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def _find_text_columns(dataset: Any, names: list[str]) -> list[str]:
    """Return which columns of a `datasets.Dataset` hold text, according to its features."""
    features = getattr(dataset, "features", None) or {}
    return [name for name in names if getattr(features.get(name), "dtype", None) in ("string", "large_string")]
