"""Where the batch of a journey comes from: which data set, whether it can be read without a loss, its first batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.utils.data import DataLoader

from ..arguments import usage_errors
from ..core.errors import DataError
from ..core.state_guard import can_be_put_back
from ..data.eval_set import EvalSet, rows_in
from ..data.mixture import Mixture
from ..data.sizes import is_iterable
from ..evaluation.request import name_evaluated_set
from .hosts import ExplainHost

_ROWS_LOOKED_AT = 8


@dataclass(frozen=True)
class Source:
    """Where a batch comes from."""

    name: str
    dataset: Any
    loader: Callable[[], Any]
    is_training: bool = False
    options: EvalSet | None = None


def chosen(trainer: ExplainHost, dataset: Any) -> Source:
    if isinstance(dataset, str):
        return evaluation_source(trainer, dataset)
    if dataset is not None:
        options = dataset if isinstance(dataset, EvalSet) else None
        return Source("data set", rows_in(dataset), partial(trainer.get_eval_dataloader, dataset), options=options)
    if trainer.train_dataset is not None:
        return Source("training set", trainer.train_dataset, trainer.get_train_dataloader, is_training=True)
    if trainer.eval_dataset is None:
        raise usage_errors.no_train_dataset()
    return evaluation_source(trainer)


def evaluation_source(trainer: ExplainHost, name: str | None = None) -> Source:
    """The evaluation set of this name, the only one, or the first of several."""
    sets = trainer.eval_dataset
    if name is not None and (not isinstance(sets, dict) or name not in sets):
        raise usage_errors.no_such_evaluation_set(name, sets)
    if name is None and isinstance(sets, dict):
        name = next(iter(sets), None)
    prefix = "eval" if name is None else f"eval_{name}"
    chosen = sets if name is None or not isinstance(sets, dict) else sets[name]
    options = chosen if isinstance(chosen, EvalSet) else None
    return Source(
        name_evaluated_set("Evaluation", prefix, sets),
        rows_in(chosen),
        partial(trainer.get_eval_dataloader, name),
        options=options,
    )


def can_be_read_again(dataset: Any) -> bool:
    """Whether reading a batch does not take it away from training."""
    if isinstance(dataset, DataLoader):
        dataset = dataset.dataset
    if not is_iterable(dataset):
        return True
    if callable(getattr(dataset, "load_state_dict", None)):
        return True  # it begins anew with every pass, unless told otherwise
    return can_be_put_back(dataset)


def first_batch(loader: Any) -> Any:
    """The first batch, read in this process: starting workers for one batch would take longer than it."""
    before = loader.num_workers, loader.pin_memory
    loader.num_workers, loader.pin_memory = 0, False
    batches = iter(loader)
    try:
        return next(batches)
    except StopIteration:
        raise DataError(
            what="there is no batch to follow",
            why="the loader gave none",
            fix="see that the data set, or its sampler, has rows",
        ) from None
    finally:
        loader.num_workers, loader.pin_memory = before
        close = getattr(batches, "close", None)
        if callable(close):
            close()


def some_rows(dataset: Any) -> list[Any]:
    """Some rows, as the data set gives them; none if they cannot be read: the loader will say why."""
    try:
        if isinstance(dataset, Mixture):
            return [part[0] for part in dataset.sets.values()]
        if is_iterable(dataset):
            return list(itertools.islice(iter(dataset), _ROWS_LOOKED_AT))
        return [dataset[index] for index in range(min(_ROWS_LOOKED_AT, len(dataset)))]
    except Exception:
        return []


def merged(rows: list[Any]) -> Any:
    """A row with all the columns that any of these has."""
    merged: dict[str, Any] = {}
    for row in rows:
        merged.update(row if isinstance(row, Mapping) else {})
    return merged


def kind_of_set(dataset: Any, inner: Any) -> str:
    if isinstance(dataset, DataLoader):
        return f"a DataLoader of yours over a {type(inner).__name__}"
    if isinstance(inner, Mixture):
        return f"a mixture of {', '.join(inner.sets)}"
    return f"{type(inner).__name__}, a stream" if is_iterable(inner) else type(inner).__name__
