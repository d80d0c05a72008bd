"""What is said of columns, batches, outputs, one row, and of labels that are probably not meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ostinato.data.columns import ColumnChoice
from ostinato.diagnostics import describe_values
from ostinato.diagnostics.batch_lint import lint_batch, lint_loss
from ostinato.diagnostics.context import FailureContext
from ostinato.diagnostics.example_row import RowDecoder, describe_row
from tests.support import tiny
from tests.support.apis import load_library

load_library("transformers")


# ---- columns and batches --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, 2], "int"),
        ([1, 2.5], "int or float"),
        ([None, "a"], "None or text"),
        ([[1], [1, 2, 3]], "list of 1 to 3 int"),
        ([[[1, 2]], [[3, 4]]], "list of 1 list of 2 int"),
        ([["a", "b"]], "list of 2 text"),
        ([[]], "list of 0 items"),
        ([torch.ones(2, 3), torch.ones(2, 4)], "varying shapes, float32"),
        ([np.zeros(3, dtype=np.int64)], "(3,) int64"),
        ([], "unknown"),
    ],
)
def test_describe_type(values: list[Any], words: str) -> None:
    assert describe_values.describe_type(values) == words


def test_why_a_column_is_kept() -> None:
    rows = [{"x": 1, "label": 2, "mine": 3, "gone": 4}]
    choice = ColumnChoice(["x", "label", "mine"], ["gone"], ["x", "labels", "label", "mine"], "data set", "Net")
    told = {one.name: one.why for one in describe_values.describe_columns(rows, choice, ["x", "labels"])}
    assert told == {
        "x": "forward takes it",
        "label": "the collator renames it to labels",
        "mine": "label_names has it",
        "gone": "forward does not take it",
    }


def test_describe_batch() -> None:
    batch = {
        "input_ids": torch.ones(2, 3, dtype=torch.long),
        "attention_mask": torch.tensor([[1, 1, 1], [1, 0, 0]]),
        "labels": torch.tensor([[0, 4, -100], [2, -100, -100]]),
        "names": ["a", "b"],
    }
    told = describe_values.describe_batch(
        batch, collator="c", kept=["input_ids", "label", "text"], labels=["labels"], micro_batches=1
    )
    assert told.rows == 2
    assert told.padding == pytest.approx(2 / 6)
    assert told.left_out == ("text",)
    assert told.values[2].note == "0 to 4, or -100"
    assert told.values[3].dtype == "list of 2: text"


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        (torch.tensor([-100, -100]), "all -100"),
        (torch.tensor([0.25, 1.0]), "0.25 to 1"),
        (torch.tensor([2, 2, -100]), "all 2, or -100"),
        (torch.tensor([True]), ""),
        (torch.zeros(0), ""),
    ],
)
def test_range_of_labels(labels: torch.Tensor, note: str) -> None:
    assert describe_values.describe_value("labels", labels, is_label=True).note == note


def test_share_of_ignored_labels() -> None:
    assert describe_values.find_ignored_share(np.array([[1, -100], [-100, -100]])) == 0.75
    assert describe_values.find_ignored_share((np.array([1]), np.array([-100]))) == 0.5
    assert describe_values.find_ignored_share(np.array([0.5])) is None
    assert describe_values.find_ignored_share(None) is None


# ---- one row --------------------------------------------------------------------------------------------------------


class Words:
    def decode(self, ids: list[int]) -> str:
        return " ".join(f"w{one}" for one in ids)


def test_a_row_of_classes() -> None:
    inputs = {"input_ids": torch.tensor([[5, 6, 0]]), "attention_mask": torch.tensor([[1, 1, 0]])}
    reader = RowDecoder(tokenizer=Words(), class_names={0: "no", 1: "yes"})
    assert describe_row(inputs, np.array([[0.0, 1.0]]), np.array([0]), reader) == (
        ("input", "'w5 w6'"),
        ("label", "0 (no)"),
        ("prediction", "1 (yes)"),
    )


def test_a_row_of_next_tokens() -> None:
    logits = np.zeros((1, 3, 9))
    logits[0, 0, 4] = logits[0, 1, 7] = logits[0, 2, 8] = 1
    told = describe_row({}, (logits, "state"), np.array([[-100, 6, 7]]), RowDecoder(tokenizer=Words(), shifts=True))
    assert told == (("label", "'w6 w7'"), ("prediction", "'w4 w7'"))


def test_a_row_of_tags() -> None:
    logits = np.eye(2)[None, [1, 0, 1]]
    reader = RowDecoder(class_names={0: "O", 1: "B"}, classes=2, vocabulary=40)
    told = describe_row({}, logits, np.array([[1, -100, 0]]), reader)
    assert told == (("label", "1 (B), 0 (O)"), ("prediction", "1 (B), 1 (B)"))


def test_a_row_of_several_labels() -> None:
    told = describe_row({}, np.array([[-1.0, 2.0, 3.0]]), np.array([[0.0, 0.0, 0.0]]), RowDecoder(several=True))
    assert told == (("label", "none"), ("prediction", "1, 2"))


@pytest.mark.parametrize(
    ("predictions", "labels", "told"),
    [
        (np.array([0.5]), np.array([1.25]), (("label", "1.25"), ("prediction", "0.5"))),
        (np.array([[1, 2]]), np.array([[1, -100]]), (("label", "1"), ("prediction", "1, 2"))),  # generated
        (None, np.array([1]), (("label", "1"),)),
        (np.array([[1.0]]), None, ()),
        (np.array([[1.0]]), (np.array([1]), np.array([2])), ()),  # question answering: two labels
        (np.zeros((1, 2, 4, 4)), np.zeros((1, 4, 4), dtype=int), (("label", "0, " * 12 + "..."),)),  # pictures
    ],
)
def test_rows_of_other_kinds(predictions: Any, labels: Any, told: Any) -> None:
    assert describe_row({}, predictions, labels, RowDecoder()) == told


def test_a_tokenizer_that_fails_leaves_numbers() -> None:
    class Broken:
        def decode(self, ids: list[int]) -> str:
            raise KeyError(ids[0])

    told = describe_row({"input_ids": torch.tensor([[1, 2]])}, None, None, RowDecoder(tokenizer=Broken()))
    assert told == (("input", "1, 2"),)


# ---- warnings -------------------------------------------------------------------------------------------------------


def find_warnings(batch: dict[str, Any], *, shifts: bool = True, model: Any = None) -> list[str]:
    context = FailureContext(model or tiny.tied(), batch)
    return [found.what for found in lint_batch(context, shifts=shifts, tokenizer=None)]


IDS = torch.arange(12).reshape(2, 6)
NEXT = torch.cat([IDS[:, 1:], torch.full((2, 1), -100)], dim=1)


def test_labels_shifted_twice() -> None:
    assert find_warnings({"input_ids": IDS, "labels": NEXT}) == [
        "the labels are already shifted by one position, and the model shifts them again"
    ]


def test_correct_labels_have_no_findings() -> None:
    assert find_warnings({"input_ids": IDS, "labels": IDS}) == []
    assert (
        find_warnings({"input_ids": IDS, "labels": NEXT}, shifts=False) == []
    )  # a loss of one's own that does not shift
    same = torch.full((2, 6), 7)  # shifted or not, who could tell
    assert find_warnings({"input_ids": same, "labels": same}) == []
    few = torch.full_like(IDS, -100)
    few[0, 0] = IDS[0, 1]  # may be by chance
    assert find_warnings({"input_ids": IDS, "labels": few}) == []
    assert find_warnings({"x": torch.ones(2, 4), "labels": torch.tensor([0, 1])}) == []


def test_labels_of_padding() -> None:
    mask = torch.tensor([[1, 1, 1, 0, 0, 0], [1] * 6])
    assert find_warnings({"input_ids": IDS, "labels": IDS, "attention_mask": mask}) == [
        "25 % of the labels that are not -100 belong to padding"
    ]
    right = IDS.masked_fill(mask == 0, -100)
    assert find_warnings({"input_ids": IDS, "labels": right, "attention_mask": mask}) == []


def test_encoder_decoder_masks_are_those_of_the_source() -> None:
    mask = torch.tensor([[1, 1, 1, 0, 0, 0], [1] * 6])
    assert (
        find_warnings({"input_ids": IDS, "labels": IDS, "attention_mask": mask}, shifts=False, model=tiny.t5()) == []
    )


def test_all_labels_ignored() -> None:
    assert find_warnings({"labels": torch.full((2, 3), -100)}) == [
        "all labels of this batch are -100, so it does not train the model"
    ]


@pytest.mark.parametrize(("loss", "is_odd"), [(1.0, False), (None, False), (float("nan"), True), (float("inf"), True)])
def test_a_loss_that_is_not_finite(loss: float | None, is_odd: bool) -> None:
    assert (lint_loss(loss) is not None) is is_odd
