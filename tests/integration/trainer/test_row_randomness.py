"""Random numbers drawn by rows and collators belong to the rows, whoever reads them and whenever."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ostinato
from tests.support import tiny
from tests.support.apis import Api

COUNT = 22
BASE: dict[str, Any] = dict(per_device_train_batch_size=4, num_train_epochs=3, write_report=False)
SAVES: dict[str, Any] = dict(save_strategy="steps", save_steps=1)


def draw() -> list[float]:
    return [random.random(), float(np.random.rand()), float(torch.rand(())), random.gauss(0, 1)]


class Augmented(torch.utils.data.Dataset):
    """Every row is new each time it is read: drawn from all three streams."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index):
        return {"x": draw(), "labels": float(index)}


class Together(Augmented):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def joined(rows):
    batch = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
    batch["x"] = batch["x"] + torch.tensor(draw())
    return batch


class Keeper(ostinato.TrainerCallback):
    """What the model was given: per step, the rows and their numbers."""

    def __init__(self, model: Any) -> None:
        self.steps: list[dict[int, list[float]]] = [{}]
        model.register_forward_pre_hook(self.look, with_kwargs=True)

    def look(self, model, args, inputs) -> None:
        if model.training:
            self.steps[-1].update(zip(inputs["labels"].int().tolist(), inputs["x"].tolist(), strict=True))

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.steps.append({})


def trained(folder: Path, checkpoint: Path | None = None, data: Any = None, collate: Any = None, **arguments: Any):
    api = Api("ostinato", folder)
    api.set_seed(42)
    model = tiny.regression(dropout=0.3)
    keeper = Keeper(model)
    args = api.args(**{**BASE, **arguments})
    data = Augmented() if data is None else data
    trainer = api.trainer(model, args, train_dataset=data, callbacks=[keeper], data_collator=collate)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    weights = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    return weights, keeper.steps[:-1], (random.random(), float(np.random.rand()), float(torch.rand(())))


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("data", [Augmented, Together])
def test_workers_change_nothing(data: type, tmp_path: Path) -> None:
    options = dict(data=data(), collate=joined, num_train_epochs=2)
    none = trained(tmp_path, **options)
    two = trained(tmp_path, dataloader_num_workers=2, **options)
    assert none[1:] == two[1:]
    assert same(none[0], two[0])


def test_workers_that_persist_know_the_epoch(tmp_path: Path) -> None:
    """Their rows are the same. (Dropout is not: torch draws a seed per epoch only where workers are started.)"""

    class Told(Augmented):
        epoch = -1

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __getitem__(self, index):
            return {"x": [float(self.epoch), *draw()[1:]], "labels": float(index)}

    options = dict(data=Told(), num_train_epochs=2)
    none = trained(tmp_path, **options)[1]
    kept = trained(tmp_path, dataloader_num_workers=1, dataloader_persistent_workers=True, **options)[1]
    assert none == kept
    assert {x[0] for step in kept for x in step.values()} == {0.0, 1.0}
    gc.collect()  # ends the workers


def test_all_rows_of_all_epochs_differ_and_come_again(tmp_path: Path) -> None:
    first, again, other = trained(tmp_path), trained(tmp_path), trained(tmp_path, seed=7)
    drawn = [value for step in first[1] for row in step.values() for value in row]
    assert len(set(drawn)) == 3 * COUNT * 4
    assert first[1] == again[1]
    assert not set(drawn) & {value for step in other[1] for row in step.values() for value in row}


@pytest.mark.parametrize("workers", [0, 2])
def test_resumed_run_is_the_same(workers: int, tmp_path: Path) -> None:
    weights, steps, after = trained(tmp_path, collate=joined, dataloader_num_workers=workers, **SAVES)
    stops = range(1, 18) if workers == 0 else (8,)
    for stop in stops:
        resumed = trained(
            tmp_path / "resumed", tmp_path / f"checkpoint-{stop}", collate=joined, dataloader_num_workers=workers
        )
        assert resumed[1] == steps[stop:], stop
        assert resumed[2] == after, stop
        assert same(weights, resumed[0]), stop


@pytest.mark.parametrize("persist", [False, True])
@pytest.mark.parametrize("isolate_rng", [False, True])
def test_workers_draw_the_same_after_a_resume(isolate_rng: bool, persist: bool, tmp_path: Path) -> None:
    """Whether rows have streams or workers have, whether workers start in every epoch or once."""
    options = dict(dataloader_num_workers=2, dataloader_persistent_workers=persist, isolate_rng=isolate_rng)
    weights, steps, after = trained(tmp_path, collate=joined, **options, **SAVES)
    for stop in (1, 6, 9):  # before each worker has read a batch, after an epoch, and inside the next one
        checkpoint = tmp_path / f"checkpoint-{stop}"
        resumed = trained(tmp_path / f"from-{stop}", checkpoint, collate=joined, **options)
        assert same(weights, resumed[0])
        assert steps[stop:] == resumed[1]
        assert after == resumed[2]


def test_resumed_twice_workers_still_draw_the_same(tmp_path: Path) -> None:
    options = dict(dataloader_num_workers=2, isolate_rng=False, collate=joined)
    weights, steps, _ = trained(tmp_path / "whole", **options, **SAVES)
    trained(tmp_path / "once", tmp_path / "whole" / "checkpoint-1", **options, **SAVES)
    twice = trained(tmp_path / "twice", tmp_path / "once" / "checkpoint-4", **options)
    assert same(weights, twice[0]) and steps[4:] == twice[1]


def test_workers_may_come_in_the_middle(tmp_path: Path) -> None:
    weights, steps, after = trained(tmp_path, collate=joined, **SAVES)
    resumed = trained(tmp_path / "resumed", tmp_path / "checkpoint-9", collate=joined, dataloader_num_workers=2)
    assert resumed[1:] == (steps[9:], after)
    assert same(weights, resumed[0])


@pytest.mark.parametrize("change", [{"per_device_train_batch_size": 8}, {"gradient_accumulation_steps": 2}], ids=str)
def test_rows_keep_their_numbers_in_other_batches(change: dict[str, Any], tmp_path: Path) -> None:
    _, steps, _ = trained(tmp_path, **SAVES)
    _, after, _ = trained(tmp_path / "resumed", tmp_path / "checkpoint-7", **change)
    for epoch in (1, 2):
        expected = {row: x for step in steps[6 * epoch : 6 * epoch + 6] for row, x in step.items()}
        seen = [item for step in after for item in step.items()][(epoch - 1) * COUNT - 4 * (epoch > 1) :][:18]
        assert all(expected[row] == x for row, x in seen)


def test_training_draws_what_it_draws_without(tmp_path: Path) -> None:
    """The streams of dropout do not notice what rows draw."""
    plain = trained(tmp_path, data=[{"x": [0.0] * 4, "labels": float(index)} for index in range(COUNT)])
    assert trained(tmp_path)[2] == plain[2]


def test_same_row_twice_is_drawn_twice(tmp_path: Path) -> None:
    api = Api("ostinato", tmp_path)
    model = tiny.regression()
    seen: list[float] = []
    model.register_forward_pre_hook(lambda m, a, inputs: seen.extend(inputs["x"][:, 0].tolist()), with_kwargs=True)
    args = api.args(per_device_train_batch_size=4, max_steps=5)
    trainer = api.trainer(model, args, train_dataset=Augmented())
    trainer._get_train_sampler = lambda dataset=None: torch.utils.data.RandomSampler(
        Augmented(), replacement=True, num_samples=40
    )
    trainer.train()
    assert len(seen) == len(set(seen)) == 20


def test_shared_streams_are_those_of_transformers(tmp_path: Path) -> None:
    """`isolate_rng=False`: rows draw what they would under transformers, and so differ from ours."""
    assert trained(tmp_path, isolate_rng=False)[1] != trained(tmp_path)[1]


class Noisy(tiny.StreamDataset):
    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        share = slice(None) if worker is None else slice(worker.id, None, worker.num_workers)
        for row in self.rows[share]:
            yield {"x": draw(), "labels": row["labels"]}


@pytest.mark.parametrize("workers", [0, 2])
def test_stream_that_draws(workers: int, tmp_path: Path) -> None:
    rows = [{"labels": float(number)} for number in range(COUNT)]
    arguments = dict(max_steps=14, dataloader_num_workers=workers, collate=joined)
    weights, steps, after = trained(tmp_path, data=Noisy(rows), **arguments, **SAVES)
    for stop in (2, 6, 9) if workers == 0 else (9,):
        resumed = trained(tmp_path / f"{stop}", tmp_path / f"checkpoint-{stop}", data=Noisy(rows), **arguments)
        assert resumed[1:] == (steps[stop:], after), stop
        assert same(weights, resumed[0])
