"""Which columns reach the model, as data."""

from __future__ import annotations

import pytest

from ostinato import Trainer, TrainingArguments
from tests.support import tiny

ROWS = [{**row, "note": "x"} for row in tiny.regression_rows(4)]


def choice(dataset=None, **given):
    args = TrainingArguments("out", use_cpu=True, **given)
    return Trainer(tiny.regression(), args, train_dataset=ROWS).model_columns(dataset)


def test_rows_of_dicts() -> None:
    found = choice()
    assert (found.kept, found.left_out) == (["x", "labels"], ["note"])
    assert found.why == "Regression.forward does not take note"


def test_a_table() -> None:
    datasets = pytest.importorskip("datasets")
    found = choice(datasets.Dataset.from_list(ROWS))
    assert (set(found.kept), found.left_out) == ({"x", "labels"}, ["note"])


def test_all_are_kept_where_nothing_is_removed() -> None:
    found = choice(remove_unused_columns=False)
    assert found.left_out == [] and "note" in found.kept and found.why == "nothing is left out"


def test_a_stream_is_not_read() -> None:
    assert choice(tiny.StreamDataset(ROWS)).kept == []
