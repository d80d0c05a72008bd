"""Batches without rows: the first is a mistake, later ones count for nothing and are told, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ostinato
from ostinato import DataError, Trainer
from ostinato.core.notices import forget_notices, listen_to_notices
from tests.support import tiny
from tests.support.quiet_trainer import build_quiet_trainer

ROWS = tiny.regression_rows(24)


class Emptying:
    """A collator whose batches have no rows, the nth of them and those after it."""

    def __init__(self, *numbers: int, nothing: bool = False) -> None:
        self.numbers, self.nothing, self.calls = numbers, nothing, 0

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        batch = ostinato.default_data_collator(rows)
        self.calls += 1
        if self.calls - 1 not in self.numbers:
            return batch
        return {} if self.nothing else {name: values[:0] for name, values in batch.items()}


class TakesAnything(torch.nn.Module):
    """Needs no input, so that an empty batch does not fail by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: Any = None, labels: Any = None) -> dict[str, Any]:
        return {"loss": self.weight * 2.0, "logits": self.weight.expand(0 if x is None else len(x))}


def build(directory: Path, collator: Any, model: torch.nn.Module | None = None, **given: Any) -> Trainer:
    settings = {"max_steps": 4, "logging_steps": 1, "save_strategy": "no", **given}
    return build_quiet_trainer(
        directory,
        tiny.regression() if model is None else model,
        train_dataset=ROWS,
        eval_dataset=ROWS,
        data_collator=collator,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        **settings,
    )


def losses(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.fixture
def notices() -> Any:
    forget_notices()
    texts: list[str] = []
    with listen_to_notices(lambda kind, text: texts.append(text)):
        yield texts


@pytest.mark.parametrize("nothing", [False, True], ids=["no rows", "no columns"])
def test_the_first_batch_is_a_mistake(tmp_path, nothing: bool) -> None:
    trainer = build(tmp_path, Emptying(0, nothing=nothing), TakesAnything())
    rows = ", ".join(map(str, trainer.samples_at(1)))
    with pytest.raises(DataError, match=f"(?s)batch 0 of the training set has no rows.*of rows {rows}"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_rehearsal_finds_it(tmp_path) -> None:
    with pytest.raises(DataError, match="batch 0 of the training set has no rows"):
        build(tmp_path, Emptying(0)).rehearse()


def test_a_later_batch_counts_for_nothing(tmp_path, notices: list[str]) -> None:
    """Neither NaN nor a step that is skipped: the gradient is zero."""
    trainer = build(tmp_path, Emptying(1, 2))
    trainer.train()
    assert [loss == 0.0 for loss in losses(trainer)] == [False, True, True, False]
    assert [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry][1:3] == [0.0, 0.0]
    about_rows = [text for text in notices if "rows" in text]
    rows = ", ".join(map(str, trainer.samples_at(2)))
    assert len(about_rows) == 2
    assert about_rows[0].startswith("batch 1 of the training set has no rows") and f"of rows {rows}" in about_rows[0]
    assert about_rows[1] == "batches without rows, which counted for nothing: 2"


def test_of_several_micro_batches_the_others_count(tmp_path) -> None:
    """As if the step had been made of them alone."""
    trainer = build(tmp_path / "a", Emptying(1), gradient_accumulation_steps=2, max_steps=1)
    trainer.train()
    alone = build(tmp_path / "b", Emptying(), max_steps=1)
    alone.train()
    assert losses(trainer) == losses(alone)
    assert all(map(torch.equal, trainer.model.state_dict().values(), alone.model.state_dict().values()))


def test_train_metrics_do_not_see_it(tmp_path) -> None:
    trainer = build(tmp_path, Emptying(1))
    trainer.train_metrics = ["mse"]
    trainer.train()
    assert ["mse" in entry for entry in trainer.state.log_history if "loss" in entry] == [True, False, True, True]


def test_a_later_batch_without_columns_is_a_mistake(tmp_path) -> None:
    trainer = build(tmp_path, Emptying(2, nothing=True), TakesAnything())
    with pytest.raises(DataError, match="batch 2 of the training set has no rows, and no columns"):
        trainer.train()
    assert trainer.state.global_step == 2


def test_a_loader_of_ones_own(tmp_path, notices: list[str]) -> None:
    trainer = build(tmp_path, None)
    batches = [ostinato.default_data_collator(ROWS[at : at + 4]) for at in range(0, 16, 4)]
    batches[2] = {name: values[:0] for name, values in batches[2].items()}
    trainer.get_train_dataloader = lambda: batches
    trainer.train()
    assert [loss == 0.0 for loss in losses(trainer)] == [False, False, True, False]
    assert [text for text in notices if text.startswith("batch 2 of the training set has no rows")]


def test_a_resumed_run_may_begin_with_one(tmp_path) -> None:
    """What comes first in a resumed run is not the first of the run."""
    whole = build(tmp_path, Emptying(2), save_strategy="steps", save_steps=2)
    whole.train()
    resumed = build(tmp_path / "resumed", Emptying(0))
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert losses(resumed) == losses(whole)


def test_evaluation_leaves_it_out(tmp_path, notices: list[str]) -> None:
    shapes = []

    def measure(prediction: Any) -> dict[str, float]:
        shapes.append([len(one) for one in (prediction.predictions, prediction.label_ids, prediction.losses)])
        return {}

    trainer = build(tmp_path, Emptying(1), include_for_metrics=["loss"])
    trainer.compute_metrics = measure
    loss = trainer.evaluate()["eval_loss"]
    plain = build(tmp_path, None)
    assert loss == pytest.approx(plain.evaluate(ROWS[:4] + ROWS[8:])["eval_loss"], rel=1e-6)
    assert shapes == [[20, 20, 20]]
    assert [text for text in notices if text.startswith("batch 1 of the evaluation set has no rows")]
    trainer.data_collator = Emptying(1)
    assert len(np.asarray(trainer.predict(ROWS).predictions)) == 20


def test_evaluation_without_any_row(tmp_path) -> None:
    trainer = build(tmp_path, Emptying(*range(6)))
    with pytest.raises(DataError, match="the evaluation set yielded no rows"):
        trainer.evaluate()


def test_evaluation_of_a_batch_without_columns_is_a_mistake(tmp_path) -> None:
    trainer = build(tmp_path, Emptying(1, nothing=True), TakesAnything())
    with pytest.raises(DataError, match="batch 1 of the evaluation set has no rows, and no columns"):
        trainer.evaluate()
