"""Errors that a device reports late name the rows and the mistake, and nothing touches the device afterwards."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato import Trainer, TrainingArguments
from ostinato.core import accelerator
from ostinato.core.errors import OutOfRangeError
from tests.support.pretend_device import set_late_asserts, set_memory_limit

pytestmark = pytest.mark.usefixtures("pretended")

CLASSES = TOKENS = 5
BAD_ROW, BAD_VALUE = 21, 9


class Classifier(nn.Module):
    """An embedding and a linear layer: a user's own model, of which nothing is known."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.classes = nn.Embedding(TOKENS, 4), nn.Linear(4, CLASSES)

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.classes(self.words(words).mean(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def make_rows(column: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"words": [n % TOKENS, 1], "labels": n % CLASSES} for n in range(32)]
    if column != "none":
        rows[BAD_ROW][column] = [0, BAD_VALUE] if column == "words" else BAD_VALUE
    return rows


def make_trainer(tmp_path: Path, rows: list[dict[str, Any]], eval_rows: Any = None, **settings: Any) -> Trainer:
    given = {"per_device_train_batch_size": 4, "max_steps": 8, "train_sampling_strategy": "sequential", **settings}
    args = TrainingArguments(str(tmp_path), report_to="none", seed=3, save_strategy="steps", save_steps=1, **given)
    return Trainer(Classifier(), args, train_dataset=rows, eval_dataset=eval_rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("column", ["words", "labels"])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_the_rows_and_the_mistake_are_named(tmp_path: Path, column: str, accumulation: int) -> None:
    set_late_asserts(True)
    trainer = make_trainer(tmp_path, make_rows(column), gradient_accumulation_steps=accumulation)
    with pytest.raises(OutOfRangeError) as caught:
        trainer.train()
    text, notes = str(caught.value), "\n".join(getattr(caught.value, "__notes__", ()))
    assert f"{BAD_VALUE} in column {column!r} is out of range" in text
    assert f"row {BAD_ROW} of the training set" in text
    assert f"at step {BAD_ROW // (4 * accumulation) + 1} of 8" in notes
    assert "restart the process" in notes
    if accumulation == 1:
        assert "checkpoint-5 is complete" in notes


@pytest.mark.parametrize("column", ["words", "labels"])
@pytest.mark.parametrize("within", ["train", "evaluate"])
def test_rows_of_an_evaluation_are_named(tmp_path: Path, column: str, within: str) -> None:
    trainer = make_trainer(tmp_path, make_rows("none"), make_rows(column), eval_strategy="steps", eval_steps=2)
    set_late_asserts(True)
    with pytest.raises(OutOfRangeError) as caught:
        getattr(trainer, within)()
    assert f"row {BAD_ROW} of the evaluation set" in str(caught.value)
    assert "in batch 3" in "".join(getattr(caught.value, "__notes__", ()))


def test_an_explanation_outlives_what_still_uses_the_device(tmp_path: Path) -> None:
    class Restoring(Trainer):
        def _evaluate(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return super()._evaluate(*args, **kwargs)
            finally:
                next(self.model.parameters()).sum().item()

    trainer = make_trainer(tmp_path, make_rows("none"), make_rows("labels"), eval_strategy="steps", eval_steps=2)
    trainer.__class__ = Restoring
    set_late_asserts(True)
    with pytest.raises(OutOfRangeError, match=f"row {BAD_ROW} of the evaluation set"):
        trainer.train()


def test_what_cannot_be_found_names_the_batches(tmp_path: Path) -> None:
    class Unknown(Classifier):
        def forward(self, words: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            beyond = 9 if words.device.type != "cpu" else 0  # not for what the batch holds
            return {"loss": self.classes.weight[torch.tensor([beyond], device=words.device)].sum()}

    set_late_asserts(True)
    trainer = make_trainer(tmp_path, make_rows("words"))
    trainer.model = trainer.model_wrapped = Unknown().to(trainer.args.device)
    with pytest.raises(RuntimeError) as caught:
        trainer.train()
    notes = "\n".join(getattr(caught.value, "__notes__", ()))
    assert "rows 0, 1, 2, 3 of the training set" in notes and "restart the process" in notes


def test_out_of_memory_names_the_step_the_shapes_and_what_to_try(tmp_path: Path, device: torch.device) -> None:
    rows = [{"words": [0] * (2000 if n >= 8 else 2), "labels": 0} for n in range(32)]
    trainer = make_trainer(tmp_path, rows)
    gc.collect()
    used = accelerator.read_memory(device)
    assert used is not None
    set_memory_limit(used.allocated + 40_000)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        trainer.train()
    notes = "\n".join(getattr(caught.value, "__notes__", ()))
    assert "at step 3 of 8, rows 8, 9, 10, 11 of the training set: words (4, 2000) int64" in notes
    assert "per_device_train_batch_size=2 with gradient_accumulation_steps=2" in notes


@pytest.mark.parametrize("column", ["words", "labels"])
def test_rows_of_a_rehearsal_are_named(tmp_path: Path, column: str) -> None:
    rows = make_rows(column)
    rows[1], rows[BAD_ROW] = rows[BAD_ROW], rows[1]
    set_late_asserts(True)
    with pytest.raises(OutOfRangeError, match="row 1 of the training set") as caught:
        make_trainer(tmp_path, rows, rehearse=True).train()
    assert "restart the process" in "".join(getattr(caught.value, "__notes__", ()))


def test_out_of_memory_in_the_optimizer_names_the_step(tmp_path: Path, device: torch.device) -> None:
    trainer = make_trainer(tmp_path, make_rows("none"))
    trainer.model.wide = nn.Linear(1, 25_000, device=device)  # type: ignore[union-attr]
    forward = trainer.model.forward
    trainer.model.forward = lambda words, labels: {
        "loss": forward(words, labels)["loss"] + trainer.model.wide.weight.sum()
    }
    gc.collect()
    used = accelerator.read_memory(device)
    assert used is not None
    set_memory_limit(used.allocated + 250_000)  # gradients fit, the two averages of AdamW do not
    with pytest.raises(torch.OutOfMemoryError) as caught:
        trainer.train()
    notes = "\n".join(getattr(caught.value, "__notes__", ()))
    assert "at step 1 of 8" in notes and "per_device_train_batch_size=2" in notes
    assert trainer._run is not None and not trainer._run.step.is_computing
