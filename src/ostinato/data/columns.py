"""Which columns of a data set reach the model: those its forward takes, and the labels."""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from torch.utils.data import get_worker_info

from ..core.errors import DataError
from ..core.notices import note_once

_COLLATED_INTO_LABELS = ("label", "label_ids")  # no model takes them, collators turn them into `labels`


# What the model takes ------------------------------------------------------------------------------------------------


def bare_model(model: Any) -> Any:
    """The model whose forward is written by hand: inside `torch.compile` and adapters such as PEFT's."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None:
            get_base_model = getattr(model, "get_base_model", None)
            inner = get_base_model() if callable(get_base_model) else None
        if inner is None or inner is model:
            return model
        model = inner


def signature_columns(model: Any, label_names: Iterable[str]) -> list[str]:
    """The names of columns that may reach the model: parameters of its forward, and what becomes labels.

    >>> class Model:
    ...     def forward(self, x, labels=None): ...
    >>> signature_columns(Model(), ["labels"])
    ['x', 'labels', 'label', 'label_ids']
    """
    names = [*_parameters(bare_model(model).forward), *_COLLATED_INTO_LABELS, *label_names]
    return list(dict.fromkeys(names))


def find_labels(model_class: type) -> list[str]:
    """The parameters of a model's forward that are labels.

    >>> class Model:
    ...     def forward(self, x, labels=None, next_sentence_label=None): ...
    >>> find_labels(Model)
    ['labels', 'next_sentence_label']
    """
    spans = ("start_positions", "end_positions") if "QuestionAnswering" in model_class.__name__ else ()
    return [name for name in _parameters(model_class.forward) if "label" in name or name in spans]  # type: ignore[attr-defined]


def default_label_names(model: Any) -> list[str]:
    """The label columns of a model when `label_names` does not say otherwise."""
    return find_labels(type(bare_model(model)))


def can_return_loss(model_class: type) -> bool:
    """Whether the model computes a loss without labels, as contrastive models do: `return_loss=True` by default."""
    parameter = inspect.signature(model_class.forward).parameters.get("return_loss")  # type: ignore[attr-defined]
    return parameter is not None and parameter.default is True


def _parameters(forward: Callable[..., Any]) -> list[str]:
    """The named parameters; `*args` and `**kwargs` name no column."""
    unnamed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(forward).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind not in unnamed and parameter.name != "self"]


# What the data set has -----------------------------------------------------------------------------------------------


def has_columns(dataset: Any) -> bool:
    """Whether columns can be taken out of the data set itself, as out of a `datasets.Dataset`."""
    names = getattr(dataset, "column_names", None)
    return isinstance(names, (list, tuple)) and callable(getattr(dataset, "remove_columns", None))


def remove_unused_columns(
    dataset: Any, columns: Collection[str], description: str | None = None, *, model_name: str = "the model"
) -> Any:
    """The data set without the columns that the model does not take. Its format (torch, numpy, ...) stays.

    Data sets without named columns come back as they are; `RemoveColumnsCollator` filters their rows.
    """
    if not has_columns(dataset):
        return dataset
    left_out = [name for name in dataset.column_names if name not in columns]
    if not left_out:
        return dataset
    kept = [name for name in dataset.column_names if name in columns]
    if not kept:
        raise _nothing_left(left_out, columns, description, model_name)
    note_once(_account(kept, left_out, description, model_name))
    return dataset.remove_columns(left_out)


class RemoveColumnsCollator:
    """Takes out of every row what the model does not take, then collates.

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
        has_only = self._kept.issuperset
        return self.data_collator(
            [row if not isinstance(row, (dict, Mapping)) or has_only(row) else self._filtered(row) for row in features]
        )

    def _filtered(self, row: Any) -> Any:
        kept = {name: value for name, value in row.items() if name in self._kept}
        if not self.message_logged:
            self._tell(list(row), list(kept))
        return kept

    def _tell(self, names: list[str], kept: list[str]) -> None:
        """Say once what is left out; complain when nothing is left."""
        self.message_logged = True
        model_name = self.model_name or "the model"
        left_out = [name for name in names if name not in self._kept]
        if not kept:
            raise _nothing_left(left_out, self.signature_columns, self.description, model_name)
        text = _account(kept, left_out, self.description, model_name)
        worker = get_worker_info()
        if worker is not None and worker.id > 0:
            return  # the first worker speaks for all
        if self.logger is not None:
            self.logger.info(text)
        else:
            note_once(text)


def collator_with_removed_columns(
    data_collator: Callable[[list[Any]], Any],
    columns: Collection[str],
    description: str | None = None,
    *,
    model_name: str | None = None,
) -> RemoveColumnsCollator:
    """For data sets without named columns: a collator that filters every row as `remove_unused_columns` would."""
    return RemoveColumnsCollator(data_collator, columns, model_name=model_name, description=description)


# In words ------------------------------------------------------------------------------------------------------------


def _account(kept: list[str], left_out: list[str], description: str | None, model_name: str) -> str:
    """One line: what is kept, what is left out, and why."""
    return (
        f"columns of {_named(description)}: kept {', '.join(kept)}; left out {', '.join(left_out)}, which "
        f"{model_name}.forward does not take (remove_unused_columns=False keeps them)"
    )


def _nothing_left(names: list[str], columns: Collection[str], description: str | None, model_name: str) -> DataError:
    """No column has the name of a parameter: show both lists, and what could have been meant."""
    return DataError(
        what=f"no column of {_named(description)} reaches {model_name}",
        why=f"the data set has {', '.join(names)}; {model_name}.forward takes {', '.join(columns)}",
        fix=_renaming(names, columns)
        + "pass rows with the model's names, or set remove_unused_columns=False and let a data_collator make them",
    )


def _renaming(names: list[str], columns: Collection[str]) -> str:
    """`rename 'input' to 'inputs'; or ` for every column that is nearly a parameter."""
    nearest = {name: difflib.get_close_matches(name, columns, n=1, cutoff=0.5) for name in names}
    pairs = [f"{name!r} to {match[0]!r}" for name, match in nearest.items() if match]
    return f"rename {', '.join(pairs)}; or " if pairs else ""


def _named(description: str | None) -> str:
    return f"the {description} set" if description else "the data set"
