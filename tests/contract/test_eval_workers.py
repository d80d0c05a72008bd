"""`dataloader_persistent_workers=True`: the workers of an evaluation set outlive an evaluation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import tiny
from tests.support.apis import Api

pytest.importorskip("transformers")

WORKERS = {"dataloader_num_workers": 1, "dataloader_persistent_workers": True, "per_device_eval_batch_size": 4}


class Watched(torch.utils.data.Dataset):
    """Rows that write down which process has read them."""

    def __init__(self, journal: Path, seed: int = 1) -> None:
        self.rows, self.journal = tiny.regression_rows(8, seed=seed), journal

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        with self.journal.open("a") as journal:
            journal.write(f"{os.getpid()}\n")
        return self.rows[index]

    @property
    def processes(self) -> int:
        return len(set(self.journal.read_text().split())) if self.journal.exists() else 0


class WatchedStream(torch.utils.data.IterableDataset):
    def __init__(self, journal: Path) -> None:
        self.inner = Watched(journal)

    def __iter__(self) -> Any:
        return (self.inner[index] for index in range(len(self.inner)))

    @property
    def processes(self) -> int:
        return self.inner.processes


def build(api: Api, evaluated: Any, **arguments: Any) -> Any:
    """A trainer that nothing else refers to, so that its workers end with the test."""
    args = api.args(**arguments)
    trainer = api.Trainer(tiny.regression(), args, train_dataset=tiny.regression_rows(), eval_dataset=evaluated)
    trainer.remove_callback(api.PrinterCallback)
    return trainer


@pytest.mark.parametrize("kind", [Watched, WatchedStream])
def test_are_started_once(api: Api, tmp_path: Path, kind: Any) -> None:
    rows = kind(tmp_path / "rows")
    trainer = build(api, rows, **WORKERS)
    losses = {trainer.evaluate()["eval_loss"] for _ in range(3)}
    assert rows.processes == 1
    assert len(losses) == 1


def test_of_each_of_several_sets(api: Api, tmp_path: Path) -> None:
    sets = {name: Watched(tmp_path / name) for name in ("news", "mail")}
    trainer = build(api, sets, **WORKERS)
    for _ in range(2):
        trainer.evaluate()
    assert [rows.processes for rows in sets.values()] == [1, 1]


def test_in_training(api: Api, tmp_path: Path) -> None:
    rows = Watched(tmp_path / "rows")
    tried = {"metric_for_best_model": "loss"}  # so that the first evaluation is tried before the first step
    build(api, rows, eval_strategy="steps", eval_steps=1, max_steps=3, **tried, **WORKERS).train()
    in_this_process = 1 if str(os.getpid()) in rows.journal.read_text().split() else 0
    assert rows.processes - in_this_process == 1


def test_a_set_that_is_passed(api: Api, tmp_path: Path) -> None:
    rows = Watched(tmp_path / "rows")
    trainer = build(api, Watched(tmp_path / "other"), **WORKERS)
    for _ in range(2):
        trainer.evaluate(rows)
    assert rows.processes == 1


class TestAnother:
    """transformers goes on with the first loader, and so evaluates the wrong rows."""

    def test_set(self, api: Api, tmp_path: Path) -> None:
        first, second = Watched(tmp_path / "first"), Watched(tmp_path / "second", seed=2)
        trainer = build(api, first, **WORKERS)
        losses = [trainer.evaluate(rows)["eval_loss"] for rows in (first, second)]
        assert (losses[0] != losses[1]) == api.is_ours
        assert second.processes == (1 if api.is_ours else 0)

    def test_set_of_the_trainer(self, api: Api, tmp_path: Path) -> None:
        trainer, second = build(api, Watched(tmp_path / "first"), **WORKERS), Watched(tmp_path / "second", seed=2)
        trainer.evaluate()
        trainer.eval_dataset = second
        trainer.evaluate()
        assert second.processes == (1 if api.is_ours else 0)

    def test_batch_size(self, api: Api, tmp_path: Path) -> None:
        trainer = build(api, Watched(tmp_path / "rows"), **WORKERS)
        assert len(trainer.get_eval_dataloader()) == 2
        trainer.args.per_device_eval_batch_size = 2
        assert len(trainer.get_eval_dataloader()) == (4 if api.is_ours else 2)

    def test_collator(self, ours: Api, tmp_path: Path) -> None:
        trainer = build(ours, Watched(tmp_path / "rows"), **WORKERS)
        before = trainer.get_eval_dataloader()
        assert trainer.get_eval_dataloader() is before
        trainer.data_collator = ours.DefaultDataCollator()
        assert trainer.get_eval_dataloader() is not before


def test_a_loader_of_the_user_keeps_its_workers(ours: Api, tmp_path: Path) -> None:
    """The evaluation that is tried before the first step reads without them, and leaves the loader as it is."""
    rows = Watched(tmp_path / "rows")
    loader = torch.utils.data.DataLoader(rows, batch_size=4, num_workers=1, collate_fn=ours.default_data_collator)
    build(ours, loader, eval_strategy="steps", eval_steps=1, max_steps=1, metric_for_best_model="loss").train()
    assert loader.num_workers == 1
