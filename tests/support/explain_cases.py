"""Trainers whose journeys are on file: six pairs of model and data, and the commonest mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ostinato
from tests.support import tiny
from tests.support.apis import QUIET


def trainer(directory: Path, model: Any, rows: Any, **rest: Any) -> Any:
    arguments = {**QUIET, "save_strategy": "no", **rest.pop("arguments", {})}
    args = ostinato.TrainingArguments(str(directory), **arguments)
    return ostinato.Trainer(model, args, train_dataset=rows, **rest)


def accuracy(prediction: Any) -> dict[str, float]:
    logits, labels = prediction
    return {"accuracy": float((logits.argmax(-1) == labels).mean())}


def renamed(rows: list[dict[str, Any]], old: str, new: str) -> list[dict[str, Any]]:
    return [{new if name == old else name: value for name, value in row.items()} for row in rows]


def without(rows: list[dict[str, Any]], gone: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != gone} for row in rows]


# ---- six pairs ------------------------------------------------------------------------------------------------------


def bert_classification(directory: Path) -> Any:
    rows = [{"idx": i, "text": "never tokenized", **row} for i, row in enumerate(tiny.ragged_classification_rows())]
    return trainer(
        directory,
        tiny.bert(id2label={0: "bad", 1: "fair", 2: "good"}),
        renamed(rows, "labels", "label"),
        eval_dataset=tiny.ragged_classification_rows(40, seed=2),
        processing_class=tiny.tokenizer(),
        compute_metrics=accuracy,
    )


def multi_label(directory: Path) -> Any:
    rows = [
        {**row, "labels": [float(i % 2), float(i % 3 == 0), 1.0]} for i, row in enumerate(tiny.classification_rows())
    ]
    return trainer(directory, tiny.bert(problem_type="multi_label_classification"), rows)


def token_classification(directory: Path) -> Any:
    tokenizer = tiny.tokenizer()
    return trainer(
        directory,
        tiny.bert("TokenClassification", id2label={0: "O", 1: "B-PER", 2: "I-PER"}),
        tiny.token_rows(),
        data_collator=ostinato.DataCollatorForTokenClassification(tokenizer),
        processing_class=tokenizer,
    )


def gpt2(directory: Path) -> Any:
    return trainer(directory, tiny.gpt2(loss_type=None), tiny.language_rows(), processing_class=tiny.tokenizer())


def t5(directory: Path) -> Any:
    return trainer(directory, tiny.t5(), tiny.translation_rows(), processing_class=tiny.tokenizer())


def plain_module(directory: Path) -> Any:
    return trainer(directory, tiny.regression(), tiny.regression_rows())


# ---- mistakes -------------------------------------------------------------------------------------------------------


def labels_under_another_name(directory: Path) -> Any:
    return trainer(directory, tiny.bert(), renamed(tiny.classification_rows(), "labels", "target"))


def no_column_left(directory: Path) -> Any:
    return trainer(directory, tiny.bert(), [{"text": "not tokenized", "label": 1} for _ in range(8)])


def labels_out_of_range(directory: Path) -> Any:
    rows = [{**row, "labels": row["labels"] + 1} for row in tiny.classification_rows()]
    return trainer(directory, tiny.bert(), rows)


def floats_for_classes(directory: Path) -> Any:
    rows = [{**row, "labels": float(row["labels"])} for row in tiny.classification_rows()]
    return trainer(directory, tiny.bert(problem_type="single_label_classification"), rows)


def language_model_without_labels(directory: Path) -> Any:
    rows = without(tiny.language_rows(), "labels")
    return trainer(directory, tiny.gpt2(), rows, processing_class=tiny.tokenizer())


def labels_shifted_twice(directory: Path) -> Any:
    rows = [{**row, "labels": [*row["input_ids"][1:], -100]} for row in tiny.language_rows()]
    return trainer(directory, tiny.gpt2(), rows, processing_class=tiny.tokenizer())


def ragged_without_padding(directory: Path) -> Any:
    return trainer(directory, tiny.bert(), tiny.ragged_classification_rows())


def tokens_beyond_the_table(directory: Path) -> Any:
    rows = [{**row, "input_ids": [*row["input_ids"][:-1], tiny.VOCAB]} for row in tiny.classification_rows()]
    return trainer(directory, tiny.bert(), rows)


def tokenizer_larger_than_the_model(directory: Path) -> Any:
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens(["new", "words"])
    return trainer(directory, tiny.bert(), tiny.classification_rows(), processing_class=tokenizer)


PAIRS: dict[str, Callable[[Path], Any]] = {
    one.__name__: one for one in (bert_classification, multi_label, token_classification, gpt2, t5, plain_module)
}
MISTAKES: dict[str, Callable[[Path], Any]] = {
    one.__name__: one
    for one in (
        labels_under_another_name,
        no_column_left,
        labels_out_of_range,
        floats_for_classes,
        language_model_without_labels,
        labels_shifted_twice,
        ragged_without_padding,
        tokens_beyond_the_table,
        tokenizer_larger_than_the_model,
    )
}
