"""`packing=True`: rows end to end, losses and gradients as if each were alone; models that mix them up are refused."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from ostinato import DataError, NotSupportedError, Trainer, TrainingArguments
from tests.support import tiny

pytest.importorskip("transformers")


def rows(count: int = 32) -> list[dict[str, Any]]:
    chance = random.Random(3)
    return [
        {"input_ids": [chance.randrange(1, tiny.VOCAB) for _ in range(chance.choice((3, 5, 9, 12)))]}
        for _ in range(count)
    ]


def pad(batch: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    width = max(len(row["input_ids"]) for row in batch)
    ids = [row["input_ids"] for row in batch]
    return {
        "input_ids": torch.tensor([one + [0] * (width - len(one)) for one in ids]),
        "attention_mask": torch.tensor([[1] * len(one) + [0] * (width - len(one)) for one in ids]),
        "labels": torch.tensor([one + [-100] * (width - len(one)) for one in ids]),
    }


def train(tmp_path: Any, model: Any, data: Any = None, **given: Any) -> Trainer:
    settings = {"per_device_train_batch_size": 4, "logging_steps": 1, "max_steps": 4, "save_strategy": "no", **given}
    args = TrainingArguments(str(tmp_path), use_cpu=True, **settings)
    trainer = Trainer(model, args, train_dataset=rows() if data is None else data, data_collator=pad)
    trainer.train()
    return trainer


def numbers(trainer: Trainer, name: str) -> list[float]:
    return [log[name] for log in trainer.state.log_history if name in log]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_losses_and_norms_are_those_of_padded_batches(accumulation: int, tmp_path) -> None:
    padded = train(tmp_path, tiny.llama(), gradient_accumulation_steps=accumulation)
    packed = train(tmp_path, tiny.llama(), gradient_accumulation_steps=accumulation, packing=True)
    assert numbers(packed, "loss") == pytest.approx(numbers(padded, "loss"), rel=1e-5)
    assert numbers(packed, "grad_norm") == pytest.approx(numbers(padded, "grad_norm"), rel=1e-4)


def test_nothing_is_padded(tmp_path) -> None:
    shapes: list[tuple[int, ...]] = []
    model = tiny.llama()
    model.register_forward_pre_hook(
        lambda module, args, inputs: shapes.append(tuple(inputs["input_ids"].shape)) if module.training else None,
        with_kwargs=True,
    )
    train(tmp_path, model, packing=True, max_steps=8)
    assert all(rows == 1 for rows, _ in shapes)
    assert sum(tokens for _, tokens in shapes) == sum(len(row["input_ids"]) for row in rows())


def test_labels_of_rows_are_refused_with_what_to_use(tmp_path) -> None:
    data = [{**row, "labels": 1} for row in rows()]
    with pytest.raises(DataError) as refusal:
        train(tmp_path, tiny.bert(dropout=0.0), data, packing=True)
    assert "split_by_length" in str(refusal.value)


def test_a_stream_is_refused(tmp_path) -> None:
    with pytest.raises(NotSupportedError, match="can only be iterated over"):
        train(tmp_path, tiny.llama(), tiny.StreamDataset(rows()), packing=True)


def test_rows_without_tokens_are_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="have no tokens") as refusal:
        train(tmp_path, tiny.regression(), tiny.regression_rows(8), packing=True)
    assert "x, labels" in refusal.value.why and refusal.value.fix
