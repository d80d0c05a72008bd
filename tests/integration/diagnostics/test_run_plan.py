"""`trainer.plan()` says before what a run then does, to the step."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import ostinato
from ostinato.core.random import RandomState
from tests.support import tiny
from tests.support.apis import load_library
from tests.support.explain_cases import trainer

load_library("transformers")


class Meter(ostinato.TrainerCallback):
    """Writes down what a run does."""

    def __init__(self) -> None:
        self.evaluations = self.saves = 0
        self.rates: dict[int, float] = {}

    def on_evaluate(self, *args: Any, **kwargs: Any) -> None:
        self.evaluations += 1

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        self.saves += 1

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "learning_rate" in logs:
            self.rates[state.global_step] = logs["learning_rate"]


def build(directory: Path, **arguments: Any) -> tuple[Any, Meter]:
    meter = Meter()
    defaults = {"logging_steps": 1, "per_device_train_batch_size": 4, "save_strategy": "steps", "learning_rate": 0.01}
    built = trainer(
        directory,
        tiny.regression(),
        tiny.regression_rows(26),
        eval_dataset=tiny.regression_rows(10, seed=5),
        callbacks=[meter],
        arguments={**defaults, **arguments},
    )
    return built, meter


RUNS: dict[str, dict[str, Any]] = {
    "epochs": {"num_train_epochs": 2, "eval_strategy": "epoch", "save_strategy": "epoch"},
    "part of an epoch": {"num_train_epochs": 1.5, "eval_strategy": "epoch", "save_strategy": "epoch"},
    "steps": {"max_steps": 11, "eval_strategy": "steps", "eval_steps": 3, "save_steps": 4, "warmup_steps": 3},
    "steps that fit": {"max_steps": 12, "eval_strategy": "steps", "eval_steps": 3, "save_steps": 4},
    "accumulated": {"num_train_epochs": 2, "gradient_accumulation_steps": 3, "eval_strategy": "epoch"},
    "a delay": {"max_steps": 12, "eval_strategy": "steps", "eval_steps": 3, "eval_delay": 6, "save_steps": 5},
    "a delay in between": {"max_steps": 13, "eval_strategy": "steps", "eval_steps": 3, "eval_delay": 7},
    "a delay of epochs": {"num_train_epochs": 4, "eval_strategy": "epoch", "eval_delay": 2},
    "fractions": {"max_steps": 20, "eval_strategy": "steps", "eval_steps": 0.25, "save_steps": 0.5},
    "from the start": {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True},
    "a tail dropped": {"num_train_epochs": 2, "dataloader_drop_last": True, "lr_scheduler_type": "cosine"},
    "nothing saved": {"num_train_epochs": 1, "save_strategy": "no", "lr_scheduler_type": "constant"},
}


@pytest.mark.parametrize("name", RUNS)
def test_the_run_follows_the_plan(name: str, tmp_path: Path) -> None:
    built, meter = build(tmp_path, **RUNS[name])
    plan = built.plan()
    built.train()
    assert plan.length.steps == built.state.global_step
    assert plan.length.epochs == pytest.approx(built.state.epoch, abs=0.01)
    assert (plan.evaluations.count, plan.checkpoints.count) == (meter.evaluations, meter.saves)
    assert plan.logs.count == len(meter.rates)
    assert {rate.step: rate.rate for rate in plan.schedule.rates} == pytest.approx(
        {rate.step: meter.rates[rate.step] for rate in plan.schedule.rates}
    )


def test_the_size_of_a_checkpoint(tmp_path: Path) -> None:
    args = {"output_dir": str(tmp_path), "max_steps": 2, "save_steps": 2, "save_total_limit": 1, "report_to": "none"}
    model = torch.nn.Linear(400, 400)
    model.forward = lambda x, labels=None: {"loss": torch.nn.Linear.forward(model, x).pow(2).mean()}  # type: ignore[method-assign]
    rows = [{"x": [0.5] * 400} for _ in range(8)]
    built = ostinato.Trainer(
        model, ostinato.TrainingArguments(**args, use_cpu=True, disable_tqdm=True), train_dataset=rows
    )
    plan = built.plan()
    built.train()
    written = sum(file.stat().st_size for file in (tmp_path / "checkpoint-2").rglob("*") if file.is_file())
    assert plan.checkpoints.bytes_each == pytest.approx(written, rel=0.1)
    assert plan.checkpoints.bytes_at_once == plan.checkpoints.bytes_each
    assert plan.checkpoints.free is not None and plan.checkpoints.free > 0


def test_nothing_is_computed_or_written(tmp_path: Path) -> None:
    built, _ = build(tmp_path / "out")
    calls: list[Any] = []
    built.model.register_forward_pre_hook(lambda *given: calls.append(given))
    before, streams = dict(vars(built)), RandomState.capture()
    built.plan()
    assert calls == []
    assert streams.is_current()
    assert {name: id(value) for name, value in vars(built).items()} == {name: id(v) for name, v in before.items()}
    assert built.optimizer is None
    assert not (tmp_path / "out").exists()


def test_weights(tmp_path: Path) -> None:
    built, _ = build(tmp_path, weight_decay=0.1, max_grad_norm=0)
    built.model.inner.requires_grad_(False)
    weights = built.plan().weights
    decayed = built.model.outer.weight.numel()
    assert (weights.decayed, weights.trainable) == (decayed, decayed + 1 + 2 * 16)
    assert weights.frozen == 4 * 16 + 16
    assert weights.clipped_at is None


def test_padding_that_could_be_saved(tmp_path: Path) -> None:
    rows = tiny.classification_rows(40, length=2) + tiny.classification_rows(8, length=30)
    random.Random(0).shuffle(rows)
    built = trainer(tmp_path, tiny.bert(), rows, processing_class=tiny.tokenizer())
    batch = built.plan().batch
    assert batch.padding is not None and batch.padding > 0.5
    assert batch.saved_by_cutting is not None and 0.5 < batch.saved_by_cutting <= batch.padding
    told = {row[0]: row[1] for section in built.plan().build_page().sections for row in section.rows}
    assert told["padding"] == "74 % of the tokens; splitting by length saves 74 %"


def test_padding_that_is_left_when_rows_are_cut_by_length(tmp_path: Path) -> None:
    rows = tiny.classification_rows(40, length=2) + tiny.classification_rows(8, length=30)
    arguments = {"split_by_length": True}
    batch = trainer(tmp_path, tiny.bert(), rows, processing_class=tiny.tokenizer(), arguments=arguments).plan().batch
    assert batch.padding is not None and batch.padding < 0.1
    assert batch.saved_by_cutting is None
    assert "split_by_length" in batch.cut


def test_a_stream_has_no_epochs(tmp_path: Path) -> None:
    rows = tiny.StreamDataset(tiny.regression_rows())
    built = trainer(tmp_path, tiny.regression(), rows, arguments={"max_steps": 5, "save_strategy": "epoch"})
    plan = built.plan()
    assert (plan.length.steps, plan.length.epochs, plan.length.rows) == (5, None, None)
    assert plan.checkpoints.count is None
    assert "unknown: the data set has no length" in str(plan)


def test_a_given_optimizer_and_schedule(tmp_path: Path) -> None:
    model = tiny.regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    plan = trainer(tmp_path, model, tiny.regression_rows(), optimizers=(optimizer, schedule)).plan()
    assert (plan.weights.optimizer, plan.weights.is_given) == ("SGD", True)
    assert (plan.schedule.name, plan.schedule.is_given, plan.schedule.rates) == ("StepLR", True, ())


def test_duration_after_a_measurement(tmp_path: Path) -> None:
    built, _ = build(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2)
    assert built.plan().duration.total is None
    assert "rehearse" in str(built.plan())
    built.rehearse()
    duration = built.plan().duration
    assert duration.seconds_per_step is not None and duration.training == pytest.approx(duration.seconds_per_step * 4)
    assert duration.evaluating is not None and duration.saving is not None
    built.train()
    assert "last run" in built.plan().duration.source


def test_remarks(tmp_path: Path) -> None:
    built, _ = build(tmp_path, max_steps=5, logging_steps=500, warmup_steps=10)
    warmup, logging = built.plan().remarks
    assert "warm-up takes 10 steps" in warmup
    assert "no training loss is logged" in logging


def test_a_run_that_cannot_start_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="train_dataset"):
        trainer(tmp_path, tiny.regression(), None).plan()


def test_as_data_and_text(tmp_path: Path) -> None:
    built, _ = build(tmp_path, bf16=True, save_total_limit=2)
    plan = built.plan()
    facts = json.loads(plan.to_json())
    assert facts["length"]["steps"] == plan.length.steps
    assert facts["arguments"]["lr_scheduler_type"] == "linear"
    assert "learning_rate=0.01" in str(plan)
    assert "bf16 under autocast, float32 weights" in str(plan)
    assert "Meter may stop the run" in str(plan)
    assert all(len(line) <= 100 for line in str(plan).replace(str(tmp_path), "out").splitlines())
