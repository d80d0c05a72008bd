"""`skip_bad_rows`: rows that cannot be read are left out, counted and listed; the rest is trained on as ever."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch

from ostinato import NotSupportedError, Trainer, TrainingArguments


class Broken(torch.utils.data.Dataset):
    """Some rows cannot be read."""

    def __init__(self, bad: set[int], count: int = 32) -> None:
        self.rows, self.bad, self.read = tiny.regression_rows(count), bad, []

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise OSError(f"image-{index}.png is truncated")
        return self.rows[index]


class AllAtOnce(Broken):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


def train(tmp_path: Any, data: Any, **given: Any) -> Trainer:
    settings = {"num_train_epochs": 2, "per_device_train_batch_size": 8, "save_strategy": "no", **given}
    args = TrainingArguments(str(tmp_path), use_cpu=True, logging_steps=1, **{"skip_bad_rows": True, **settings})
    trainer = Trainer(tiny.regression(), args, train_dataset=data)
    trainer.train()
    return trainer


def losses(trainer: Trainer) -> list[float]:
    return [log["loss"] for log in trainer.state.log_history if "loss" in log]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Broken, AllAtOnce])
def test_bad_rows_are_left_out_said_once_and_listed(kind: Any, workers: int, tmp_path, capfd) -> None:
    trainer = train(tmp_path, kind({3, 17}), dataloader_num_workers=workers)
    assert trainer.skipped_rows == {3: "OSError: image-3.png is truncated", 17: "OSError: image-17.png is truncated"}
    assert trainer.state.global_step == 8
    said = capfd.readouterr().err.splitlines()
    assert sorted(said[:2]) == [
        "ostinato: row 17 of the training set is skipped: OSError: image-17.png is truncated",
        "ostinato: row 3 of the training set is skipped: OSError: image-3.png is truncated",
    ]
    assert said[2:] == ["ostinato: 2 rows of the training set were skipped: 3, 17"]


def test_without_bad_rows_nothing_changes(tmp_path, capfd) -> None:
    plain = train(tmp_path, Broken(set()), skip_bad_rows=False)
    skipping = train(tmp_path, Broken(set()))
    assert losses(plain) == losses(skipping)
    assert skipping.skipped_rows == {} and capfd.readouterr().err == ""


def test_a_step_is_the_mean_of_its_good_rows(tmp_path) -> None:
    """One batch of all rows: training on it without row 5 is training on the other rows."""
    data = Broken({5}, count=8)
    skipping = train(tmp_path, data, num_train_epochs=1)
    others = [row for number, row in enumerate(data.rows) if number != 5]
    assert losses(skipping) == pytest.approx(losses(train(tmp_path, others, num_train_epochs=1)), rel=1e-6)


def test_a_step_without_any_good_row_is_left_out(tmp_path) -> None:
    trainer = train(tmp_path, Broken(set(range(8)), 16), num_train_epochs=1, train_sampling_strategy="sequential")
    assert trainer.state.global_step == 1 and len(trainer.skipped_rows) == 8


def test_accumulation_and_splitting_go_with_it(tmp_path) -> None:
    for given in ({"gradient_accumulation_steps": 2}, {"split_by_length": True}):
        assert set(train(tmp_path, Broken({3, 17}), **given).skipped_rows) == {3, 17}


def test_without_it_the_row_ends_the_run(tmp_path) -> None:
    with pytest.raises(OSError, match=r"image-3\.png"):
        train(tmp_path, Broken({3}), skip_bad_rows=False)


def test_a_stream_and_a_mixture_are_refused(tmp_path) -> None:
    rows = tiny.regression_rows(8)
    with pytest.raises(NotSupportedError, match="a stream"):
        train(tmp_path, tiny.StreamDataset(rows), max_steps=2)
    with pytest.raises(NotSupportedError, match="a mixture"):
        train(tmp_path, {"a": (rows, 0.5), "b": (rows, 0.5)})


def test_a_row_that_cannot_be_collated_still_has_its_number(tmp_path) -> None:
    data = Broken({0, 1}, count=8)
    data.rows[6]["x"] = "not a number"
    with pytest.raises(ValueError, match="row 6 of the training set"):
        train(tmp_path, data, train_sampling_strategy="sequential")
