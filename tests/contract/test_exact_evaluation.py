"""`eval_loss` is the mean over all that the loss averages: the same for every batch size, and that of a loop by hand.

transformers takes the mean of the batches' means; where rows have different numbers of labels, that is another number
for every batch size, and NaN where a batch has none.
"""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import nn

from tests.support import tiny
from tests.support.parity import run_one

pytest.importorskip("transformers")

SIZES = (1, 2, 7, 16)
ROWS = 16


def hidden(rows: list[dict], every: int) -> list[dict]:
    """Some rows without any label."""
    for row in rows[::every]:
        labels = row["labels"]
        row["labels"] = [-100] * len(labels) if isinstance(labels, list) else -100
    return rows


def masked_rows() -> list[dict]:
    return [
        {**row, "labels": [token if (i + place) % 4 == 0 else -100 for place, token in enumerate(row["input_ids"])]}
        for i, row in enumerate(tiny.token_rows(ROWS))
    ]


def choice_rows() -> list[dict]:
    rows = tiny.classification_rows(ROWS, num_labels=2)
    pairs = zip(rows, rows[1:] + rows[:1], strict=True)
    return [
        {
            "input_ids": [one["input_ids"], other["input_ids"]],
            "attention_mask": [one["attention_mask"], other["attention_mask"]],
            "labels": one["labels"],
        }
        for one, other in pairs
    ]


def tokens(api):
    return api.DataCollatorForTokenClassification(tiny.tokenizer())


def no_collator(api):
    return None


# head -> (model, rows, collator, whether each place is compared with the next label)
HEADS = {
    "classification": (tiny.bert, lambda: hidden(tiny.classification_rows(ROWS), 5), no_collator, False),
    "multiple choice": (lambda: tiny.bert("MultipleChoice"), choice_rows, no_collator, False),
    "tokens": (lambda: tiny.bert("TokenClassification"), lambda: hidden(tiny.token_rows(ROWS), 4), tokens, False),
    "masked": (lambda: tiny.bert("MaskedLM"), masked_rows, tokens, False),
    "causal": (tiny.llama, lambda: hidden(tiny.language_rows(ROWS), 6), no_collator, True),
    "causal that does not say so": (
        lambda: tiny.gpt2(loss_type=None),
        lambda: hidden(tiny.language_rows(ROWS), 6),
        no_collator,
        True,
    ),
    "seq2seq": (tiny.t5, lambda: hidden(tiny.translation_rows(ROWS), 6), no_collator, False),
}
EVEN = {"multiple choice"}  # as many labels in every row: there, the mean of means is the mean


def losses(head: str, library: str, **options) -> list[float]:
    build, rows, collator, _ = HEADS[head]

    def script(api):
        return [
            api.trainer(
                build(), api.args(per_device_eval_batch_size=size), data_collator=collator(api), **options
            ).evaluate(rows())["eval_loss"]
            for size in SIZES
        ]

    return run_one(script, library).result


@cache
def by_hand(head: str) -> float:
    """Row by row, each label one by one."""
    build, rows, _, shifts = HEADS[head]
    model, total, count = build().eval(), 0.0, 0
    for row in rows():
        inputs = {name: torch.tensor([value]) for name, value in row.items()}
        labels = inputs["labels"].reshape(-1)
        if (labels == -100).all():
            continue
        with torch.no_grad():
            logits = model(**inputs).logits.double()
        logits = logits.reshape(-1, logits.shape[-1])
        if shifts:
            logits, labels = logits[:-1], labels[1:]
        total += nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=-100).item()
        count += int((labels != -100).sum())
    return total / count


@pytest.mark.parametrize("head", HEADS)
def test_the_loss_does_not_depend_on_the_batch_size(head: str) -> None:
    ours, expected = losses(head, "ostinato"), by_hand(head)
    assert ours == pytest.approx([expected] * len(SIZES), rel=1e-6)


@pytest.mark.parametrize("head", sorted(HEADS))
def test_that_of_transformers_does(head: str) -> None:
    theirs, expected = losses(head, "transformers"), by_hand(head)
    same = theirs == pytest.approx([expected] * len(SIZES), rel=1e-5)
    assert same == (head in EVEN)


class Values(nn.Module):
    """Two values per row, some of which are not known; without a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, labels=None):
        return {"logits": self.layer(x)}


def own_rows() -> list[dict]:
    return hidden([{**row, "labels": i % 3} for i, row in enumerate(tiny.regression_rows(ROWS))], 7)


def own_loss(outputs, labels, num_items_in_batch=None):
    return nn.functional.cross_entropy(outputs["logits"], labels, ignore_index=-100)


def own_expectation() -> float:
    data = [row for row in own_rows() if row["labels"] != -100]
    with torch.no_grad():
        logits = tiny.seeded(Values)(torch.tensor([row["x"] for row in data]))["logits"].double()
    return nn.functional.cross_entropy(logits, torch.tensor([row["labels"] for row in data])).item()


@pytest.mark.parametrize("as_what", ["compute_loss", "compute_loss_func"])
def test_a_mean_of_ones_own(as_what: str, ours) -> None:
    class OwnLoss(ours.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            labels = inputs.pop("labels")
            outputs = model(**inputs)
            loss = own_loss(outputs, labels)
            return (loss, outputs) if return_outputs else loss

    options = {"cls": OwnLoss} if as_what == "compute_loss" else {"compute_loss_func": own_loss}
    found = [
        ours.trainer(tiny.seeded(Values), ours.args(per_device_eval_batch_size=size), **options).evaluate(own_rows())
        for size in SIZES
    ]
    assert [one["eval_loss"] for one in found] == pytest.approx([own_expectation()] * len(SIZES), rel=1e-6)


@pytest.mark.parametrize("head", ["classification", "tokens", "causal", "seq2seq"])
def test_metrics_do_not_depend_on_the_batch_size(head: str, ours) -> None:
    build, rows, collator, _ = HEADS[head]
    found = []
    for size in SIZES:
        args = ours.args(per_device_eval_batch_size=size)
        trainer = ours.trainer(build(), args, data_collator=collator(ours), metrics=["accuracy", "f1_macro"])
        metrics = trainer.evaluate(rows())
        found.append((metrics["eval_accuracy"], metrics["eval_f1_macro"]))
    assert len(set(found)) == 1
    assert not math.isnan(found[0][0])
