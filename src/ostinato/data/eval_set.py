"""An evaluation set with options of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import ConfigError


@dataclass(frozen=True)
class EvalSet:
    """One of several evaluation sets, with the options that differ for it.

    Options that are left out are as for the other sets. Metrics given here replace the trainer's.

    Args:
        dataset: The rows.
        data_collator: Makes batches of them.
        compute_metrics: As for `Trainer`: a function, names, a streaming metric or "auto".
        metrics: As for `Trainer`: names and streaming metrics.
        batch_size: Rows per batch and device.

    Raises:
        ConfigError: `dataset` is not the rows of one set, `batch_size` is not a positive integer, or `data_collator`
            cannot be called.

    >>> EvalSet(["a row"], metrics=["accuracy"], batch_size=64).batch_size
    64
    """

    dataset: Any
    data_collator: Callable[[list[Any]], Any] | None = field(default=None, kw_only=True)
    compute_metrics: Any = field(default=None, kw_only=True)
    metrics: Any = field(default=None, kw_only=True)
    batch_size: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.dataset is None or isinstance(self.dataset, (str, Mapping, EvalSet)):
            raise ConfigError(
                what=f"EvalSet was given a {type(self.dataset).__name__}",
                why="it holds the rows of one evaluation set",
                fix='pass several sets as a dict: eval_dataset={"dev": EvalSet(dev_rows), "test": test_rows}',
            )
        if self.batch_size is not None and (not isinstance(self.batch_size, int) or self.batch_size < 1):
            raise ConfigError(
                what=f"EvalSet was given batch_size={self.batch_size!r}",
                why="a batch has at least one row",
                fix="batch_size=8",
            )
        if self.data_collator is not None and not callable(self.data_collator):
            raise ConfigError(
                what=f"EvalSet was given a {type(self.data_collator).__name__} as data_collator",
                why="it is called with the rows of each batch",
                fix="data_collator=DataCollatorWithPadding(tokenizer)",
            )

    @property
    def measures(self) -> bool:
        """Whether the set has metrics of its own."""
        return self.compute_metrics is not None or self.metrics is not None


def unwrap_eval_set(evaluated: Any) -> Any:
    """Return the rows of an evaluation set, with or without options.

    >>> unwrap_eval_set(EvalSet([1])), unwrap_eval_set([1])
    ([1], [1])
    """
    return evaluated.dataset if isinstance(evaluated, EvalSet) else evaluated
