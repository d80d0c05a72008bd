"""Which rows a step was, or will be, computed from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ostinato
from ostinato.data.epoch_position import find_batching, samples_at
from ostinato.data.step_schedule import StepSchedule
from tests.support import tiny
from tests.support.apis import Api

ROWS = [{"x": [number / 30, 1.0, 0.0, -1.0], "labels": float(number)} for number in range(22)]


class Recorder(ostinato.TrainerCallback):
    """A forward hook tells which rows a step was computed from; a callback, what `samples_at` says meanwhile."""

    trainer: Any = None

    def __init__(self, model: Any) -> None:
        self.steps: dict[int, list[int]] = {}
        self.open: list[int] = []
        model.register_forward_pre_hook(self.look, with_kwargs=True)

    def look(self, model, args, inputs) -> None:
        if model.training:
            self.open += [int(label) for label in inputs["labels"]]
            assert self.open[-1] in self.trainer.samples_at(self.trainer.state.global_step + 1)

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.steps[state.global_step] = self.open
        self.open = []


def trainer_of(folder: Path, data: Any = ROWS, **arguments: Any) -> tuple[Any, Recorder]:
    api = Api("ostinato", folder)
    api.set_seed(42)
    model = tiny.regression()
    recorder = Recorder(model)
    options = dict(per_device_train_batch_size=4, num_train_epochs=3, save_strategy="steps", save_steps=4)
    trainer = api.trainer(model, api.args(**{**options, **arguments}), train_dataset=data, callbacks=[recorder])
    recorder.trainer = trainer
    return trainer, recorder


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"gradient_accumulation_steps": 2},
        {"data_seed": 5, "dataloader_drop_last": True},
        {"train_sampling_strategy": "sequential", "per_device_train_batch_size": 5},
        {"dataloader_num_workers": 2, "num_train_epochs": 1.5},
    ],
    ids=str,
)
def test_before_during_and_after(arguments: dict[str, Any], tmp_path: Path) -> None:
    trainer, recorder = trainer_of(tmp_path, **arguments)
    fresh, _ = trainer_of(tmp_path, **arguments)
    trainer.train()
    assert len(recorder.steps) == trainer.state.max_steps
    for step, seen in recorder.steps.items():
        assert trainer.samples_at(step) == fresh.samples_at(step) == seen, step


def test_after_another_batch_size(tmp_path: Path) -> None:
    trainer, before = trainer_of(tmp_path)
    trainer.train()
    resumed, after = trainer_of(tmp_path, per_device_train_batch_size=3)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    for step in range(1, 9):
        assert resumed.samples_at(step) == before.steps[step]
    assert sorted(after.steps) == list(range(9, resumed.state.max_steps + 1))
    for step, seen in after.steps.items():
        assert resumed.samples_at(step) == seen, step


def test_after_an_epoch_that_was_cut_short(tmp_path: Path) -> None:
    trainer, recorder = trainer_of(tmp_path)

    class CutShort(ostinato.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_epoch_stop = state.global_step == 2

    trainer.add_callback(CutShort)
    trainer.train()
    assert len(recorder.steps) == 2 + 6 + 6
    for step, seen in recorder.steps.items():
        assert trainer.samples_at(step) == seen, step


def test_asking_changes_nothing(tmp_path: Path) -> None:
    asked, _ = trainer_of(tmp_path)
    asked.samples_at(18)
    asked.train()
    plain, _ = trainer_of(tmp_path)
    plain.train()
    for one, other in zip(asked.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("step", [0, -1, 19])
def test_no_such_step(step: int, tmp_path: Path) -> None:
    with pytest.raises(ostinato.DataError, match="18 steps") as raised:
        trainer_of(tmp_path)[0].samples_at(step)
    assert isinstance(raised.value, IndexError) and "from 1 to 18" in str(raised.value)


@pytest.mark.parametrize("step", ["1", 1.0, None, [1]])
def test_what_is_no_step(step: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="is not the number of a step") as raised:
        trainer_of(tmp_path)[0].samples_at(step)
    assert isinstance(raised.value, ostinato.DataError) and "fix: use samples_at(1)" in str(raised.value)


def test_steps_counted_in_numpy_or_torch(tmp_path: Path) -> None:
    trainer, _ = trainer_of(tmp_path)
    assert trainer.samples_at(torch.tensor(3)) == trainer.samples_at(np.int64(3)) == trainer.samples_at(3)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_batches_of_so_many_tokens(accumulation: int, tmp_path: Path) -> None:
    rows = [{**row, "input_ids": [1] * (1 + (7 * n) % 9)} for n, row in enumerate(ROWS)]
    arguments = {"max_tokens_per_batch": 24, "gradient_accumulation_steps": accumulation}
    trainer, recorder = trainer_of(tmp_path, rows, **arguments)
    fresh, _ = trainer_of(tmp_path, rows, **arguments)
    trainer.train()
    assert len(recorder.steps) == trainer.state.max_steps
    for step, seen in recorder.steps.items():
        assert trainer.samples_at(step) == fresh.samples_at(step) == seen, step


def test_orders_that_are_not_ours(tmp_path: Path) -> None:
    stream, _ = trainer_of(tmp_path, tiny.StreamDataset(ROWS), max_steps=4)
    grouped, _ = trainer_of(
        tmp_path,
        [{**row, "input_ids": [1] * n} for n, row in enumerate(ROWS)],
        train_sampling_strategy="group_by_length",
    )
    own, _ = trainer_of(tmp_path)
    own._get_train_sampler = lambda dataset=None: torch.utils.data.SubsetRandomSampler(range(10))
    batches, _ = trainer_of(tmp_path)
    batches.get_train_dataloader = lambda: torch.utils.data.DataLoader(ROWS, batch_size=2)
    for trainer, why in ((stream, "stream"), (grouped, "drawn"), (own, "SubsetRandomSampler"), (batches, "your own")):
        with pytest.raises(ostinato.NotSupportedError, match=why):
            trainer.samples_at(1)


def test_arithmetic_of_several_processes(ours: Api) -> None:
    """All processes together, also where the last step leaves one without rows."""
    schedule = StepSchedule(step=0, epoch=0, row=0, rows=22, rows_per_batch=8, accumulation=2, drop_last=False)
    assert [schedule.rows_of(step) for step in (1, 2, 3)] == [(0, range(16)), (0, range(16, 22)), (1, range(16))]
    assert schedule.find_position_after(2) == (1, 0) and schedule.find_position_after(3) == (1, 16)
    loader = ours.trainer(
        tiny.regression(), ours.args(per_device_train_batch_size=4), train_dataset=ROWS
    ).get_train_dataloader()
    batching = find_batching(loader)
    assert batching is not None
    start = batching.build_schedule(1, step=0, epoch=0, row=0, group=None)
    assert sorted(row for step in range(1, 7) for row in samples_at(loader, [start], step, 6)) == list(range(22))
