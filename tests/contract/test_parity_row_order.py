"""Rows reach the model in the order they do in a run of transformers' Trainer, and random numbers are drawn alike.

Everything is written down: which rows are read, when they are collated, when the model is called, and one random
number per collated batch and per call. Two runs are equal when these lists are.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from ostinato.arguments.settings import LoaderSettings
from ostinato.core.random import set_seed
from ostinato.data.loader import build_loader
from ostinato.data.samplers.epoch_sampler import build_eval_sampler, build_train_sampler
from tests.support.loader_settings import make_loader_settings
from tests.support.references import recall

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

ROWS = 11


class Rows(Dataset[Any]):
    def __init__(self, log: list[Any], rows: int = ROWS) -> None:
        self.log, self.rows = log, rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index >= self.rows:
            raise IndexError(index)
        self.log.append(("read", index))
        return {"input_ids": [1] * ((index * 7) % 5 + 1), "labels": index}


class RowStream(IterableDataset[Any]):
    def __init__(self, log: list[Any], rows: int = ROWS) -> None:
        self.rows = Rows(log, rows)

    def __iter__(self) -> Any:
        for index in range(len(self.rows)):
            yield self.rows[index]
        self.rows.log.append("end of stream")


class Collator:
    """Draws a number for every batch, as masking does."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __call__(self, rows: list[Any]) -> dict[str, torch.Tensor]:
        labels = torch.tensor([row["labels"] for row in rows])
        self.log.append(("collate", labels.tolist(), float(torch.rand(()))))
        return {"input_ids": labels[:, None].float(), "labels": labels}


class Model(torch.nn.Module):
    """Draws a number for every call, as dropout does."""

    def __init__(self, log: list[Any]) -> None:
        super().__init__()
        self.log = log
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.log.append(("call", labels.tolist(), float(torch.rand(()))))
        return {"loss": self.layer(input_ids).mean(), "logits": labels}


def their_log(folder: Path, dataset: Any, before: Callable[[], Any] | None, **options: Any) -> list[Any]:
    return recall(lambda: train_theirs(folder, dataset, before, **options))


def train_theirs(folder: Path, dataset: Any, before: Callable[[], Any] | None, **options: Any) -> list[Any]:
    log: list[Any] = []
    options = {"use_cpu": True, "report_to": "none", "save_strategy": "no", "logging_strategy": "no", **options}
    options |= {"disable_tqdm": True, "dataloader_pin_memory": False, "per_device_train_batch_size": 2}
    args = transformers.TrainingArguments(str(folder), **options)
    trainer = transformers.Trainer(Model(log), args, train_dataset=dataset(log), data_collator=Collator(log))
    if before is not None:
        before()
    log.clear()
    trainer.train()
    return log


def our_log(
    settings: LoaderSettings,
    dataset: Any,
    before: Callable[[], Any] | None,
    *,
    epochs: int = 1,
    accumulation: int = 1,
    max_steps: int | None = None,
) -> list[Any]:
    """The loop in small: what a trainer does with the parts."""
    log: list[Any] = []
    model, rows = Model(log), dataset(log)
    set_seed(42)
    if before is not None:
        before()
    sampler = build_train_sampler(rows, settings, batch_size=2 * accumulation)
    log.clear()  # reading lengths
    loader = build_loader(
        rows, batch_size=2, sampler=sampler, collate_fn=Collator(log), settings=settings, training=True
    )
    steps = 0
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        batches = iter(loader)
        while steps != max_steps and (update := list(islice(batches, accumulation))):
            for batch in update:
                model(**batch)
            steps += 1
    return log


def reads_left_out(log: list[Any]) -> list[Any]:
    return [entry for entry in log if entry[0] != "read"]


@pytest.mark.parametrize(("data_seed", "accumulation"), [(None, 1), (None, 3), (0, 1), (9, 3)])
def test_random_order(tmp_path: Path, data_seed: int | None, accumulation: int) -> None:
    theirs = their_log(
        tmp_path, Rows, None, num_train_epochs=3, data_seed=data_seed, gradient_accumulation_steps=accumulation
    )
    ours = our_log(make_loader_settings(seed=data_seed), Rows, None, epochs=3, accumulation=accumulation)
    assert ours == theirs
    assert sum(entry[0] == "call" for entry in ours) == 18


@pytest.mark.parametrize("data_seed", [None, 9])
def test_seeding_between_making_a_trainer_and_training(tmp_path: Path, data_seed: int | None) -> None:
    def before() -> None:
        torch.manual_seed(1234)
        torch.rand(3)

    theirs = their_log(tmp_path, Rows, before, num_train_epochs=2, data_seed=data_seed)
    assert our_log(make_loader_settings(seed=data_seed), Rows, before, epochs=2) == theirs


@pytest.mark.parametrize(
    ("strategy", "accumulation", "data_seed"),
    [("sequential", 1, 9), ("group_by_length", 1, None), ("group_by_length", 3, None), ("group_by_length", 1, 9)],
)
def test_other_orders(tmp_path: Path, strategy: str, accumulation: int, data_seed: int | None) -> None:
    theirs = their_log(
        tmp_path,
        Rows,
        None,
        num_train_epochs=2,
        train_sampling_strategy=strategy,
        gradient_accumulation_steps=accumulation,
        data_seed=data_seed,
    )
    first_batch = next(number for number, entry in enumerate(theirs) if entry[0] == "collate")
    theirs = theirs[first_batch:]  # before it, theirs reads every row to learn its length
    settings = make_loader_settings(sampling=strategy, seed=data_seed)
    ours = our_log(settings, Rows, None, epochs=2, accumulation=accumulation)
    first_batch = next(number for number, entry in enumerate(ours) if entry[0] == "collate")
    assert ours[first_batch:] == theirs


@pytest.mark.parametrize(("accumulation", "rows"), [(1, 10), (3, 10), (3, 11)])
def test_stopping_in_the_middle(tmp_path: Path, accumulation: int, rows: int) -> None:
    def dataset(log: list[Any]) -> Rows:
        return Rows(log, rows * 2)

    theirs = their_log(tmp_path, dataset, None, max_steps=2, gradient_accumulation_steps=accumulation)
    assert our_log(make_loader_settings(), dataset, None, accumulation=accumulation, max_steps=2) == theirs


def test_dropping_the_last_batch(tmp_path: Path) -> None:
    theirs = their_log(tmp_path, Rows, None, num_train_epochs=2, dataloader_drop_last=True)
    assert our_log(make_loader_settings(drop_last=True), Rows, None, epochs=2) == theirs


@pytest.mark.parametrize("rows", [6, 7])
def test_streams(tmp_path: Path, rows: int) -> None:
    def dataset(log: list[Any]) -> RowStream:
        return RowStream(log, rows)

    theirs = their_log(tmp_path, dataset, None, max_steps=6)
    assert our_log(make_loader_settings(), dataset, None, epochs=2, max_steps=6) == theirs


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("strategy", ["random", "group_by_length"])
def test_workers(tmp_path: Path, strategy: str) -> None:
    theirs = their_log(
        tmp_path, Rows, None, num_train_epochs=2, dataloader_num_workers=2, train_sampling_strategy=strategy
    )
    ours = our_log(make_loader_settings(num_workers=2, sampling=strategy), Rows, None, epochs=2)
    assert reads_left_out(ours) == reads_left_out(theirs)  # workers read elsewhere
    assert sum(entry[0] == "call" for entry in ours) == 12


def test_evaluation(tmp_path: Path) -> None:
    log: list[Any] = []
    args = transformers.TrainingArguments(
        str(tmp_path),
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        per_device_eval_batch_size=2,
    )
    trainer = transformers.Trainer(Model(log), args, data_collator=Collator(log))
    trainer.evaluate(Rows(log))
    theirs = list(log)
    log.clear()
    model, rows = Model(log), Rows(log)
    set_seed(42)
    loader = build_loader(
        rows,
        batch_size=2,
        sampler=build_eval_sampler(rows),
        collate_fn=Collator(log),
        settings=make_loader_settings(),
        training=False,
    )
    for batch in loader:
        model(**batch)
    assert log == theirs


def test_one_loader_iterated_by_hand(tmp_path: Path) -> None:
    """A second pass over one loader is the next epoch; a pass that was broken off is repeated."""

    def passes(loader: Any) -> list[Any]:
        first = [batch["labels"].tolist() for batch in loader]
        next(iter(loader))
        second = [batch["labels"].tolist() for batch in loader]
        loader.set_epoch(5)
        return [first, second, [batch["labels"].tolist() for batch in loader]]

    args = transformers.TrainingArguments(
        str(tmp_path), use_cpu=True, report_to="none", dataloader_pin_memory=False, per_device_train_batch_size=2
    )
    trainer = transformers.Trainer(Model([]), args, train_dataset=Rows([]), data_collator=Collator([]))
    theirs = passes(trainer.get_train_dataloader())
    set_seed(42)
    rows = Rows([])
    sampler = build_train_sampler(rows, make_loader_settings(), batch_size=2)
    ours = build_loader(
        rows, batch_size=2, sampler=sampler, collate_fn=Collator([]), settings=make_loader_settings(), training=True
    )
    assert passes(ours) == theirs
