"""`auto_find_batch_size`: memory that runs out makes batches smaller, and takes nothing of the run away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato import EMACallback, Trainer, TrainerCallback, TrainingArguments
from ostinato.core.errors import ConfigError, NotSupportedError
from ostinato.core.notices import forget_notices
from tests.support.apis import QUIET

ERRORS = {
    "accelerator": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "cpu": RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes."),
    "cudnn": RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if ..."),
}


class Hungry(nn.Module):
    """Runs out of memory with more than `limit` rows from micro-batch `after` on; draws and counts at random."""

    def __init__(self, limit: int = 100, after: int = 0, kind: str = "accelerator") -> None:
        super().__init__()
        torch.manual_seed(3)
        self.inner, self.norm, self.outer = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)
        self.limit, self.after, self.kind = limit, after, kind
        self.calls: list[int] = []
        self.rows: list[int] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor, row: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.inner(x) if len(x) == 1 else self.norm(self.inner(x))
        hidden = nn.functional.dropout(hidden, 0.3, self.training)
        if self.training:
            self.calls.append(len(x))
            if len(x) > self.limit and len(self.calls) > self.after:
                raise ERRORS[self.kind]
            self.rows += row.tolist()
        logits = self.outer(hidden).squeeze(-1)
        return {"loss": (logits - labels).square().mean(), "logits": logits}


def make_rows(count: int = 32) -> list[dict[str, Any]]:
    draw = torch.Generator().manual_seed(5)
    return [
        {"x": torch.randn(4, generator=draw), "labels": torch.randn((), generator=draw), "row": torch.tensor(number)}
        for number in range(count)
    ]


def build(out: Path, model: nn.Module, *, callbacks: Any = (), **arguments: Any) -> Trainer:
    defaults: dict[str, Any] = {
        **QUIET,
        "per_device_train_batch_size": 16,
        "num_train_epochs": 2,
        "logging_steps": 1,
        "learning_rate": 1e-2,
        "save_strategy": "no",
        "write_report": False,
        "auto_find_batch_size": True,
        "seed": 7,
    }
    args = TrainingArguments(str(out), **{**defaults, **arguments})
    return Trainer(model, args, train_dataset=make_rows(), eval_dataset=make_rows(4), callbacks=list(callbacks))


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(value, twin) for value, twin in pairs)


def losses(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("kind", ERRORS)
def test_a_run_that_does_not_fit_is_the_run_with_smaller_batches(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights, buffers, random streams and optimizer begin anew."""
    forget_notices()
    found = build(tmp_path / "found", Hungry(limit=9, kind=kind))
    found.train()
    told = capsys.readouterr().err
    assert found.model.calls == [16, 14, 12, 10, *[9, 9, 9, 5] * 2]
    assert [f"micro-batches of {size} rows: going on" in told for size in (16, 14, 12, 10, 9)] == [True] * 4 + [False]
    chosen = build(tmp_path / "chosen", Hungry(), per_device_train_batch_size=9, auto_find_batch_size=False)
    chosen.train()
    assert same(found.model, chosen.model) and losses(found) == losses(chosen)
    assert found.state.train_batch_size == chosen.state.train_batch_size == 9
    assert found.args.per_device_train_batch_size == 16
    assert found.state.global_step == chosen.state.global_step == found.state.max_steps == 8


def test_steps_that_were_taken_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Memory runs out in the second step: the first one stays, and every row is seen once in each epoch."""
    forget_notices()
    trainer = build(tmp_path, Hungry(limit=8, after=1))
    trainer.train()
    assert trainer.model.calls == [16, 16, 14, 12, 10, 9, 8, 8, 8, 8, 8, 8]
    assert sorted(trainer.model.rows[:32]) == sorted(trainer.model.rows[32:]) == list(range(32))
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == [1, 2, 3, 4, 5, 6, 7]
    told = capsys.readouterr().err
    assert "out of memory at step 2 with micro-batches of 16 rows: going on with 14" in told
    assert "resuming at row 16 of epoch 0 with 8 rows per step instead of 16: every row is still seen once" in told
    assert trainer.state.max_steps == 7 and trainer.state.epoch == 2.0


def test_a_restart_is_exact(tmp_path: Path) -> None:
    """It is the run that was saved after the last step and resumed with smaller batches."""
    restarted = build(tmp_path / "restarted", Hungry(limit=14, after=1), lr_scheduler_type="constant")
    restarted.train()
    first = build(
        tmp_path / "first", Hungry(), lr_scheduler_type="constant", save_strategy="steps", save_steps=1, max_steps=1
    )
    first.train()
    second = build(
        tmp_path / "second",
        Hungry(),
        lr_scheduler_type="constant",
        per_device_train_batch_size=14,
        auto_find_batch_size=False,
    )
    second.train(resume_from_checkpoint=str(tmp_path / "first" / "checkpoint-1"))
    assert same(restarted.model, second.model)
    assert losses(restarted) == losses(second)
    assert restarted.state.global_step == second.state.global_step == 6


def test_a_schedule_follows_the_new_length(tmp_path: Path) -> None:
    trainer = build(tmp_path, Hungry(limit=8, after=1))
    trainer.train()
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    assert rates == pytest.approx([1e-2, *(1e-2 * (7 - step) / 7 for step in range(1, 7))])


def test_accumulation_keeps_its_number_of_micro_batches(tmp_path: Path) -> None:
    trainer = build(tmp_path, Hungry(limit=4), per_device_train_batch_size=5, gradient_accumulation_steps=2)
    trainer.train()
    assert trainer.model.calls == [5, *[4] * 16]
    assert trainer.state.global_step == 8


def test_memory_that_runs_out_inside_an_accumulation(tmp_path: Path) -> None:
    """The first micro-batch of the step is computed again with the others."""
    trainer = build(
        tmp_path, Hungry(limit=7, after=1), per_device_train_batch_size=8, gradient_accumulation_steps=2, max_steps=1
    )
    trainer.train()
    chosen = build(
        tmp_path / "chosen", Hungry(), per_device_train_batch_size=7, gradient_accumulation_steps=2, max_steps=1
    )
    chosen.train()
    assert trainer.model.calls == [8, 8, 7, 7] and same(trainer.model, chosen.model)


def test_one_row_that_does_not_fit_is_the_end(tmp_path: Path) -> None:
    trainer = build(tmp_path, Hungry(limit=0), per_device_train_batch_size=3)
    with pytest.raises(torch.OutOfMemoryError) as error:
        trainer.train()
    assert trainer.model.calls == [3, 2, 1]
    assert any("one row does not fit" in note for note in error.value.__notes__)


@pytest.mark.parametrize("error", [RuntimeError("out of luck"), MemoryError("no"), ValueError("wrong")])
def test_other_errors_are_raised_at_once(tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ERRORS, "accelerator", error)
    trainer = build(tmp_path, Hungry(limit=4))
    with pytest.raises(type(error)):
        trainer.train()
    assert trainer.model.calls == [16]


def test_without_the_argument_the_error_is_raised(tmp_path: Path) -> None:
    trainer = build(tmp_path, Hungry(limit=4), auto_find_batch_size=False)
    with pytest.raises(torch.OutOfMemoryError):
        trainer.train()
    assert trainer.model.calls == [16]


def test_memory_that_runs_out_in_the_optimizer_or_an_evaluation_is_raised(tmp_path: Path) -> None:
    """Smaller training batches would not help there."""

    class Greedy(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            raise ERRORS["accelerator"]

    model = Hungry()
    trainer = build(tmp_path, model)
    trainer.optimizer = Greedy(model.parameters(), lr=0.1)
    with pytest.raises(torch.OutOfMemoryError):
        trainer.train()
    assert model.calls == [16]

    class Evaluated(Hungry):
        def forward(self, x: torch.Tensor, labels: torch.Tensor, row: torch.Tensor) -> dict[str, torch.Tensor]:
            if not self.training:
                raise ERRORS["accelerator"]
            return super().forward(x, labels, row)

    trainer = build(tmp_path, Evaluated(), eval_strategy="steps", eval_steps=1)
    with pytest.raises(torch.OutOfMemoryError):
        trainer.train()


def test_batches_of_the_user_are_not_changed(tmp_path: Path) -> None:
    model = Hungry(limit=4)
    trainer = build(tmp_path, model)
    trainer.train_dataset = torch.utils.data.DataLoader(make_rows(), batch_size=8)
    with pytest.raises(torch.OutOfMemoryError) as error:
        trainer.train()
    assert model.calls == [8]
    assert any("not made by the trainer" in note for note in error.value.__notes__)


def test_a_resumed_run_begins_with_the_batches_it_had(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = build(tmp_path, Hungry(limit=8), save_strategy="steps", save_steps=3)
    whole.train()
    saved = json.loads((tmp_path / "checkpoint-3" / "trainer_state.json").read_text())
    assert saved["train_batch_size"] == 8
    forget_notices()
    resumed = build(tmp_path / "resumed", Hungry(limit=8))
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert resumed.model.calls == [8] * 5
    assert "micro-batches have 8 rows" in capsys.readouterr().err
    assert same(whole.model, resumed.model) and losses(whole) == losses(resumed)


def test_a_resumed_run_that_does_not_fit_begins_again_at_its_checkpoint(tmp_path: Path) -> None:
    build(tmp_path, Hungry(), save_strategy="steps", save_steps=1, lr_scheduler_type="constant").train()
    found = build(tmp_path / "found", Hungry(limit=14), lr_scheduler_type="constant")
    found.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    smaller = {"per_device_train_batch_size": 14, "auto_find_batch_size": False}
    chosen = build(tmp_path / "chosen", Hungry(), lr_scheduler_type="constant", **smaller)
    chosen.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert found.model.calls == [16, 14, 2, 14, 14, 4] and same(found.model, chosen.model)


def test_events_checkpoints_journal_and_averages_go_on(tmp_path: Path) -> None:
    events: list[tuple[str, int]] = []

    class Watch(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            events.append(("begin", state.global_step))

        def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            events.append(("evaluate", state.global_step))

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            events.append(("epoch", state.global_step))

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            events.append(("end", state.global_step))

    average = EMACallback(decay=0.5, warm_up=False)
    trainer = build(
        tmp_path,
        Hungry(limit=14, after=2),
        callbacks=[Watch(), average],
        save_strategy="steps",
        save_steps=1,
        eval_strategy="epoch",
        eval_on_start=True,
        write_report=True,
        rehearse=False,
    )
    trainer.train()
    assert trainer.model.calls == [16, 16, 16, 14, 14, 4]
    assert events == [
        *[("begin", 0), ("evaluate", 0), ("epoch", 2), ("evaluate", 2)],
        *[("begin", 2), ("epoch", 5), ("evaluate", 5), ("end", 5)],
    ]
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == [f"checkpoint-{n}" for n in range(1, 6)]
    assert average.updates == 5, "the average is that of the whole run"
    journal = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in journal if entry["event"] == "log" and "loss" in entry["logs"]] == [
        1,
        2,
        3,
        4,
        5,
    ]
    assert len({entry["run"] for entry in journal}) == 1
    assert any("going on with 14" in entry.get("text", "") for entry in journal)
    assert (tmp_path / "report.html").exists()


def test_a_rehearsal_finds_the_batch_size_too(tmp_path: Path) -> None:
    trainer = build(tmp_path, Hungry(limit=10), rehearse=True)
    trainer.train()
    assert trainer.state.train_batch_size == 10 and trainer.model.calls[:4] == [16, 14, 12, 10]


def test_what_cannot_be_done_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="cannot be repeated"):
        TrainingArguments("out", use_cpu=True, auto_find_batch_size=True, optim="adalomo")
    monkeypatch.setattr(TrainingArguments, "world_size", property(lambda self: 2))
    with pytest.raises(NotSupportedError, match="with 2 processes"):
        TrainingArguments("out", use_cpu=True, auto_find_batch_size=True)
