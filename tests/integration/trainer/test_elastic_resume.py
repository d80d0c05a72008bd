"""Stopped anywhere and continued with other numbers, a run still sees each row once in every epoch."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import ostinato
from tests.support import tiny
from tests.support.apis import Api

COUNT, EPOCHS = 14, 3  # four steps to the epoch, the last of two rows
EVERY_STEP = False  # stop at each of them in every order: takes minutes
STOPS = (1, 3, 5, 6)  # within the first epoch and within the second
STOPS_OF_WORKERS = (2, 6)  # who start slowly
BASE: dict[str, Any] = dict(
    per_device_train_batch_size=4, num_train_epochs=EPOCHS, save_strategy="steps", save_steps=1,
    logging_strategy="no", write_report=False,  # three hundred runs, of which nobody reads that
)  # fmt: skip


class Recorder(ostinato.TrainerCallback):
    """Which rows each step was computed from, by the labels that the model was given."""

    def __init__(self, model: Any) -> None:
        self.steps: list[list[int]] = []
        self.open: list[int] = []
        model.register_forward_pre_hook(self.look, with_kwargs=True)

    def look(self, model, args, inputs) -> None:
        if model.training:
            self.open += [int(label) for label in inputs["labels"]]

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.steps.append(self.open)
        self.open = []


class SavesAt(ostinato.TrainerCallback):
    """Checkpoints where they are needed only."""

    def __init__(self, steps: tuple[int, ...]) -> None:
        self.steps = steps

    def on_step_end(self, args, state, control, **kwargs) -> None:
        control.should_save |= state.global_step in self.steps


def rows(count: int = COUNT) -> list[dict[str, Any]]:
    lengths = torch.randint(1, 9, (count,), generator=torch.Generator().manual_seed(0)).tolist()
    return [
        {"x": [number / 30, 1.0, 0.0, -1.0], "labels": float(number), "input_ids": [1] * length}
        for number, length in enumerate(lengths)
    ]


def noisy(row: dict[str, Any]) -> dict[str, Any]:
    """Rows are other rows every time they are read."""
    return {**row, "x": [value + 0.1 * float(torch.randn(())) for value in row["x"]]}


class Noisy(tiny.MapDataset):
    def __getitem__(self, index: int) -> dict[str, Any]:
        return noisy(super().__getitem__(index))


class Stream(tiny.StreamDataset):
    """Another order in every epoch."""

    epoch = at = start = 0

    def __len__(self) -> int:
        return len(self.rows)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(self.epoch)).tolist()
        self.at, self.start = self.start, 0
        while self.at < len(self):
            self.at += 1
            yield noisy(self.rows[order[self.at - 1]])


class Stateful(Stream):
    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = state["at"]


class OwnBatches(torch.utils.data.BatchSampler):
    """Batches of the user's own, of different sizes."""

    def __init__(self) -> None:
        pass

    def __len__(self) -> int:
        return 5

    def __iter__(self):
        cuts = [0, 4, 9, 11, 13, COUNT]
        return iter([list(range(start, end)) for start, end in itertools.pairwise(cuts)])


def trained(
    folder: Path, checkpoint: Path | None = None, data: Any = None, callbacks: Any = (), **arguments: Any
) -> tuple[Any, Any]:
    api = Api("ostinato", folder)
    api.set_seed(42)
    model = tiny.regression(dropout=0.3)
    recorder = Recorder(model)
    own = {"batch_sampler": arguments.pop("batch_sampler")()} if "batch_sampler" in arguments else {}
    args = api.args(**{**BASE, **arguments})
    data = rows() if data is None else data
    trainer = api.trainer(model, args, train_dataset=data, callbacks=[recorder, *callbacks], **own)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return trainer, recorder.steps


CHANGES: dict[str, dict[str, Any]] = {
    "same": {},
    "batches twice as large": {"per_device_train_batch_size": 8, "max_tokens_per_batch": 48},
    "batches half as large": {"per_device_train_batch_size": 2, "max_tokens_per_batch": 12},
    "an odd size": {"per_device_train_batch_size": 3, "max_tokens_per_batch": 17},
    "accumulation": {"gradient_accumulation_steps": 2},
    "half the batch, twice the accumulation": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2},
    "two workers": {"dataloader_num_workers": 2},
}
WINDOWS: dict[str, Any] = {"train_sampling_strategy": "group_by_length", "length_window": 2}
ORDERS: dict[str, dict[str, Any]] = {
    "random": {},
    "in sequence": {"train_sampling_strategy": "sequential"},
    "by length": {"train_sampling_strategy": "group_by_length"},
    "by windows": WINDOWS,
    "by tokens": {"max_tokens_per_batch": 24},
    "batches of their own": {"batch_sampler": OwnBatches},
    "stream": {"data": Stream},
    "stream that tells": {"data": Stateful},
    "stream by windows": {"data": Stream, **WINDOWS},
    "stream that tells, by windows": {"data": Stateful, **WINDOWS},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Uninterrupted runs, with checkpoints to go on from."""
    made: dict[str, tuple[Path, Any, Any]] = {}

    def get(order: str) -> tuple[Path, Any, Any]:
        if order not in made:
            folder = tmp_path_factory.mktemp("whole")
            settings = settings_of(order)
            if not (EVERY_STEP or order == "random"):
                settings |= {"save_strategy": "no", "callbacks": [SavesAt((*STOPS, *STOPS_OF_WORKERS))]}
            made[order] = (folder, *trained(folder, **settings))
        return made[order]

    return get


def settings_of(order: str, change: str = "same") -> dict[str, Any]:
    """An order with other numbers; those of tokens are of the order that goes by tokens only."""
    settings = {**ORDERS[order], **CHANGES[change]}
    if order != "by tokens":
        settings.pop("max_tokens_per_batch", None)
    return {**settings, "data": settings.get("data", Noisy)(rows())}


# Who reads which rows of a stream is for the stream to say.
CASES = [(change, order) for change in CHANGES for order in ORDERS if not ("worker" in change and "stream" in order)]


@pytest.mark.parametrize(("change", "order"), CASES)
def test_each_row_once_per_epoch(change: str, order: str, whole: Any, tmp_path: Path) -> None:
    folder, first, before = whole(order)
    stops = range(1, len(before)) if EVERY_STEP or order == "random" else STOPS
    for stop in stops if change != "two workers" or EVERY_STEP else STOPS_OF_WORKERS:
        shutil.copytree(folder / f"checkpoint-{stop}", tmp_path / f"checkpoint-{stop}")
        arguments = {**settings_of(order, change), "save_strategy": "no"}
        trainer, after = trained(tmp_path, tmp_path / f"checkpoint-{stop}", **arguments)
        seen = [row for step in before[:stop] + after for row in step]
        for epoch in range(EPOCHS):
            assert sorted(seen[epoch * COUNT : (epoch + 1) * COUNT]) == list(range(COUNT)), (stop, epoch)
        assert len(seen) == EPOCHS * COUNT
        assert trainer.state.global_step == trainer.state.max_steps == stop + len(after)
        assert trainer.state.epoch == EPOCHS
        if change == "same" or change == "two workers":
            for name, weight in first.model.state_dict().items():
                assert torch.equal(weight, trainer.model.state_dict()[name]), (stop, name)


def test_twice_changed_and_resumed_without_a_change(tmp_path: Path) -> None:
    """The second interruption changes nothing: the length of the run is that of the first change."""
    trained(tmp_path / "a")
    changed, after = trained(tmp_path / "b", tmp_path / "a/checkpoint-1", per_device_train_batch_size=6)
    assert changed.state.max_steps == 1 + 2 + 3 + 3
    for stop in (2, 3, 5, 8):
        again, rest = trained(
            tmp_path, tmp_path / f"b/checkpoint-{stop}", per_device_train_batch_size=6, save_strategy="no"
        )
        assert again.state.max_steps == 9
        assert rest == after[stop - 1 :]
        for name, weight in changed.model.state_dict().items():
            assert torch.equal(weight, again.model.state_dict()[name]), (stop, name)


def test_fraction_of_an_epoch(tmp_path: Path) -> None:
    """Half an epoch is half its steps, rounded up."""
    trained(tmp_path, num_train_epochs=1.5)
    _, after = trained(
        tmp_path, tmp_path / "checkpoint-1", num_train_epochs=1.5, per_device_train_batch_size=8, save_strategy="no"
    )
    assert [len(step) for step in after] == [8, 2, 8]
    _, after = trained(
        tmp_path, tmp_path / "checkpoint-5", num_train_epochs=1.5, per_device_train_batch_size=2, save_strategy="no"
    )
    assert [len(step) for step in after] == [2, 2]


def test_max_steps_stay(tmp_path: Path) -> None:
    trained(tmp_path, max_steps=3)
    trainer, after = trained(
        tmp_path, tmp_path / "checkpoint-2", max_steps=7, per_device_train_batch_size=8, save_strategy="no"
    )
    assert [len(step) for step in after] == [6, 8, 6, 8, 6]
    assert trainer.state.global_step == 7


def test_what_changes_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(tmp_path)
    capsys.readouterr()
    trained(tmp_path, tmp_path / "checkpoint-5")
    assert "row" not in capsys.readouterr().err
    trained(tmp_path, tmp_path / "checkpoint-5", per_device_train_batch_size=8, save_strategy="no")
    said = capsys.readouterr().err
    assert "resuming at row 4 of epoch 1 with 8 rows per step instead of 4: every row is still seen once" in said
    assert "the learning-rate schedule is stretched to 9 steps, from 12" in said
    trained(tmp_path, tmp_path / "checkpoint-5", rows(30), save_strategy="no")
    assert "the training set has 30 rows instead of 14" in capsys.readouterr().err


def test_checkpoint_that_counts_batches(tmp_path: Path) -> None:
    """Checkpoints from before rows were counted."""
    from ostinato.checkpoint import training_state
    from ostinato.checkpoint.atomic import atomic_directory

    _, before = trained(tmp_path)
    old = tmp_path / "old" / "checkpoint-3"
    with atomic_directory(old, leader=True, barrier=lambda: None) as directory:
        for file in (tmp_path / "checkpoint-3").iterdir():
            if file.name != "MANIFEST.json":
                shutil.copy(file, directory)
        loop = training_state.load_loop_state(directory)
        loop["place"] = {name: loop["place"][name] for name in ("epoch", "batch", "stream", "before_read")}
        training_state.save_loop_state(directory, loop)
    _, after = trained(tmp_path / "resumed", old)
    assert before[3:] == after


def test_skipped_rows_are_not_read(tmp_path: Path) -> None:
    read: list[int] = []

    class Rows(tiny.MapDataset):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    trained(tmp_path, data=Rows(rows(1000)), max_steps=3, save_steps=3)
    read.clear()
    trained(tmp_path, tmp_path / "checkpoint-3", Rows(rows(1000)), max_steps=5, per_device_train_batch_size=8)
    assert Counter(read).most_common(1)[0][1] == 1
    assert len(read) == 3 * 8, "two steps, and the batch that is read ahead"
