"""What a user sees when rows are fine for the collator and the batch is not for the model: the whole text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import ostinato
from ostinato import Trainer, TrainingArguments
from tests.support import tiny

pytest.importorskip("transformers")


def without(rows: list[dict[str, Any]], value: Any) -> list[dict[str, Any]]:
    return [{**row, "labels": value} for row in rows]


def into_a_list(rows: list[Any]) -> Any:
    return [torch.zeros(2)]


def into_nothing(rows: list[Any]) -> Any:
    return None


MISTAKES: dict[str, tuple[Callable[[], dict[str, Any]], type, str]] = {
    "a collator that returns a list": (
        lambda: {"data_collator": into_a_list},
        TypeError,
        "into_a_list returned a list, not a dict\n"
        "  why: the model is called with keyword arguments, model(**batch)\n"
        '  fix: let the data_collator return a dict of tensors, such as {"input_ids": ..., "labels": ...}',
    ),
    "a collator that returns nothing": (
        lambda: {"data_collator": into_nothing},
        TypeError,
        "into_nothing returned None, not a dict\n"
        "  why: the model is called with keyword arguments, model(**batch)\n"
        '  fix: let the data_collator return a dict of tensors, such as {"input_ids": ..., "labels": ...}',
    ),
    "labels that are None": (
        lambda: {"train_dataset": without(tiny.regression_rows(8), None)},
        ValueError,
        "column 'labels' of the training set is None (row 6 and all others of its batch)\n"
        "  why: default_data_collator makes one tensor of every column, and tensors hold numbers only\n"
        "  fix: fill in 'labels'; to predict without labels, leave 'labels' out of the rows",
    ),
    "labels that are text": (
        lambda: {"model": tiny.bert(), "train_dataset": without(tiny.classification_rows(8), "pos")},
        ValueError,
        "column 'labels' of the training set holds text (row 6: 'pos'), not numbers\n"
        "  why: a loss is computed from class numbers\n"
        "  fix: number the classes: classes.index(row['labels'])",
    ),
    "text that the default collator leaves out": (
        lambda: {
            "model": tiny.bert(),
            "train_dataset": [{"text": "hello", "labels": 1}] * 8,
            "remove_unused_columns": False,
        },
        ValueError,
        "the training set looks like raw text: row 6 has text, labels, no 'input_ids'\n"
        "  why: 'text' holds text that was never tokenized ('hello')\n"
        '  fix: replace every row by {**row, **tokenizer(row["text"], truncation=True)}',
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_whole_text(name: str, tmp_path) -> None:
    build, kind, text = MISTAKES[name]
    given = {"model": tiny.regression(), "train_dataset": tiny.regression_rows(8), **build()}
    columns = given.pop("remove_unused_columns", True)
    args = TrainingArguments(str(tmp_path / "out"), use_cpu=True, max_steps=2, remove_unused_columns=columns)
    trainer = Trainer(args=args, **given)
    with pytest.raises(ostinato.OstinatoError) as refusal:
        trainer.train()
    assert str(refusal.value) == text
    assert isinstance(refusal.value, kind)
    assert trainer.state.global_step == 0
    assert len([frame for frame in refusal.traceback if "/ostinato/" in str(frame.path)]) <= 6
