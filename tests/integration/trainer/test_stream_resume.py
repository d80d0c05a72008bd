"""Streams: resumed through their own state where they have one, read up to where they stood where not."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

import ostinato
from tests.support import tiny
from tests.support.apis import Api

COUNT = 22


class Stateful(torch.utils.data.IterableDataset):
    """Another order in every epoch; tells where it stands, and counts what it reads."""

    def __init__(self) -> None:
        self.epoch, self.at, self.reads, self.start = 0, 0, 0, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "epoch": self.epoch, "nested": [None, {"x": (1, 2.5)}], "t": torch.arange(2)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["epoch"] == self.epoch
        self.start = state["at"]

    def __iter__(self):
        order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        self.at, self.start = self.start, 0
        while self.at < COUNT:
            number = order[self.at]
            self.at += 1
            self.reads += 1
            yield {"x": [number / 30, 1.0, 0.0, -1.0], "labels": float(number)}


class Recorder(ostinato.TrainerCallback):
    def __init__(self, model: Any) -> None:
        self.steps: list[list[int]] = [[]]
        model.register_forward_pre_hook(self.look, with_kwargs=True)

    def look(self, model, args, inputs) -> None:
        self.steps[-1] += inputs["labels"].int().tolist()

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.steps.append([])


def trained(folder: Path, data: Any, checkpoint: Path | None = None, loader: Any = None, **arguments: Any):
    api = Api("ostinato", folder)
    api.set_seed(42)
    model = tiny.regression(dropout=0.3)
    recorder = Recorder(model)
    saves = {"save_strategy": "steps", "save_steps": 1} if checkpoint is None else {}  # nobody goes on a second time
    options = dict(per_device_train_batch_size=4, max_steps=14, write_report=False, **saves)
    trainer = api.trainer(model, api.args(**{**options, **arguments}), train_dataset=data, callbacks=[recorder])
    if loader is not None:
        trainer.get_train_dataloader = lambda: loader
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return {name: weight.clone() for name, weight in trainer.model.state_dict().items()}, recorder.steps[:-1]


def test_stream_with_a_state(tmp_path: Path) -> None:
    weights, steps = trained(tmp_path, Stateful())
    assert sorted(itertools.chain(*steps[:6])) == sorted(itertools.chain(*steps[6:12])) == list(range(COUNT))
    assert steps[:6] != steps[6:12]
    for stop in range(1, 14):
        stream = Stateful()
        resumed, rest = trained(tmp_path / f"{stop}", stream, tmp_path / f"checkpoint-{stop}")
        assert rest == steps[stop:], stop
        assert all(torch.equal(weights[name], resumed[name]) for name in weights), stop
        wanted = sum(map(len, rest))
        assert stream.reads <= wanted + 4, "no more than the batch that is read ahead"


def test_stream_with_a_state_in_other_batches(tmp_path: Path) -> None:
    _, steps = trained(tmp_path, Stateful())
    _, rest = trained(tmp_path / "other", Stateful(), tmp_path / "checkpoint-3", per_device_train_batch_size=5)
    assert sorted(itertools.chain(*steps[:3], *rest[:2])) == list(range(COUNT))


def test_stream_of_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")

    def stream():
        rows = [{"x": [number / 30, 1.0, 0.0, -1.0], "labels": float(number)} for number in range(COUNT)]
        return datasets.Dataset.from_list(rows).to_iterable_dataset(num_shards=2)

    weights, steps = trained(tmp_path, stream())
    for stop in (2, 6, 9):
        resumed, rest = trained(tmp_path / f"{stop}", stream(), tmp_path / f"checkpoint-{stop}")
        assert rest == steps[stop:], stop
        assert all(torch.equal(weights[name], resumed[name]) for name in weights), stop


def streams_of_datasets() -> dict[str, Any]:
    datasets = pytest.importorskip("datasets")
    rows = [{"x": [number / 30, 1.0, 0.0, -1.0], "labels": float(number)} for number in range(COUNT)]

    def stream() -> Any:
        return datasets.Dataset.from_list(rows).to_iterable_dataset(num_shards=2)

    def shuffled() -> Any:
        return stream().shuffle(seed=3, buffer_size=7)

    return {
        "shuffled": shuffled,
        "shuffled, mapped": lambda: shuffled().map(lambda row: row),
        "interleaved": lambda: datasets.interleave_datasets([shuffled(), stream()], seed=0, probabilities=[0.5, 0.5]),
        "filtered": lambda: stream().filter(lambda row: row["labels"] != 5),
        "mapped in batches": lambda: stream().map(lambda rows: rows, batched=True, batch_size=5),
    }


BUFFERED = ("shuffled", "shuffled, mapped", "interleaved")


@pytest.mark.parametrize("kind", [*BUFFERED, "filtered", "mapped in batches"])
def test_streams_of_datasets_lose_no_row(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a shuffle buffer holds is not in the stream's own state."""
    stream = streams_of_datasets()[kind]
    weights, steps = trained(tmp_path, stream())
    for stop in (1, 4, 9):
        capsys.readouterr()
        ostinato.core.notices.forget_notices()
        resumed, rest = trained(tmp_path / f"{stop}", stream(), tmp_path / f"checkpoint-{stop}")
        assert rest == steps[stop:], stop
        assert all(torch.equal(weights[name], resumed[name]) for name in weights), stop
        said = "the stream shuffles in a buffer, whose rows its state_dict does not hold"
        assert (said in capsys.readouterr().err) == (kind in BUFFERED)


class StatefulLoader:
    """A loader of the user's that tells where it stands."""

    def __init__(self) -> None:
        self.at, self.start, self.loaded = 0, 0, []

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = state["at"]
        self.loaded.append(state)

    def __len__(self) -> int:
        return 6

    def __iter__(self):
        self.at, self.start = self.start, 0
        while self.at < 6:
            self.at += 1
            numbers = torch.arange(4) + 4 * self.at
            yield {"x": torch.ones(4, 4) * numbers[:, None] / 30, "labels": numbers.float()}


def test_loader_with_a_state(tmp_path: Path) -> None:
    weights, steps = trained(tmp_path, None, loader=StatefulLoader())
    for stop in (2, 6, 8):
        loader = StatefulLoader()
        resumed, rest = trained(tmp_path / f"{stop}", None, tmp_path / f"checkpoint-{stop}", loader=loader)
        assert rest == steps[stop:] and len(loader.loaded) == (stop != 6)
        assert all(torch.equal(weights[name], resumed[name]) for name in weights), stop


def test_rows_that_are_dropped_are_not_joined(tmp_path: Path) -> None:
    rows = [{"x": [0.0] * 4, "labels": float(number)} for number in range(COUNT)]
    api, joined = Api("ostinato", tmp_path), []

    def collate(found):
        joined.append([int(row["labels"]) for row in found])
        return {name: torch.tensor([row[name] for row in found]) for name in found[0]}

    args = api.args(per_device_train_batch_size=2, max_steps=5, save_strategy="steps", save_steps=1)
    for checkpoint in (None, str(tmp_path / "checkpoint-4")):
        joined.clear()
        trainer = api.trainer(tiny.regression(), args, train_dataset=tiny.StreamDataset(rows), data_collator=collate)
        trainer.train(resume_from_checkpoint=checkpoint)
    assert joined == [[8, 9], [10, 11]]


def test_stream_without_a_state_in_other_batches(tmp_path: Path) -> None:
    rows = [{"x": [0.0] * 4, "labels": float(number)} for number in range(COUNT)]
    trained(tmp_path, tiny.StreamDataset(rows))
    _, rest = trained(
        tmp_path / "other", tiny.StreamDataset(rows), tmp_path / "checkpoint-4", per_device_train_batch_size=2
    )
    assert rest[:3] == [[16, 17], [18, 19], [20, 21]]


def test_two_changes_in_one_epoch(tmp_path: Path) -> None:
    rows = [{"x": [0.0] * 4, "labels": float(number)} for number in range(COUNT)]
    _, first = trained(tmp_path / "a", tiny.StreamDataset(rows))
    _, second = trained(
        tmp_path / "b",
        tiny.StreamDataset(rows),
        tmp_path / "a/checkpoint-2",
        per_device_train_batch_size=3,
        save_strategy="steps",
        save_steps=1,
    )
    _, third = trained(
        tmp_path / "c", tiny.StreamDataset(rows), tmp_path / "b/checkpoint-3", per_device_train_batch_size=5
    )
    assert list(itertools.chain(*first[:2], *second[:1], *third[:3])) == list(range(COUNT))


def test_another_number_of_workers_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"x": [0.0] * 4, "labels": float(number)} for number in range(COUNT)]
    trained(tmp_path, tiny.StreamDataset(rows), max_steps=3)
    capsys.readouterr()
    trained(tmp_path / "b", tiny.StreamDataset(rows), tmp_path / "checkpoint-2", max_steps=3, dataloader_num_workers=1)
    assert "1 workers share the stream instead of 0" in capsys.readouterr().err


class Shared(tiny.StreamDataset):
    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        yield from (self.rows[number] for number in order[worker.id :: worker.num_workers])


@pytest.mark.parametrize("persistent", [False, True])
def test_finite_stream_over_epochs_in_workers(persistent: bool, tmp_path: Path) -> None:
    rows = [{"x": [0.0] * 4, "labels": float(number)} for number in range(COUNT)]
    _, steps = trained(
        tmp_path,
        Shared(rows),
        max_steps=18,
        dataloader_num_workers=1 if persistent else 2,
        dataloader_persistent_workers=persistent,
        save_strategy="no",
    )
    epochs = [list(itertools.chain(*steps[start : start + 6])) for start in (0, 6, 12)]
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    gc.collect()  # ends the workers
