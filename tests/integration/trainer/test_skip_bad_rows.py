"""`skip_bad_rows`: rows that cannot be read are left out, counted and listed; the rest is trained on as ever."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ostinato import DataError, NotSupportedError, Trainer, TrainingArguments
from tests.support import tiny


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


class BrokenStream(torch.utils.data.IterableDataset):
    """An iterator of its own, which goes on after a row that raised."""

    def __init__(self, bad: set[int], count: int = 32) -> None:
        self.data, self.bad = tiny.regression_rows(count), bad

    def __iter__(self) -> Any:
        return Rows(iter(enumerate(self.data)), self.bad)


class Rows:
    def __init__(self, rows: Any, bad: set[int]) -> None:
        self.rows, self.bad = rows, bad

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        number, row = next(self.rows)
        if number in self.bad:
            raise OSError(f"line {number} is no JSON")
        return row


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_goes_on_after_a_bad_row(workers: int, tmp_path, capfd) -> None:
    trainer = train(tmp_path, BrokenStream({3, 17}), max_steps=8, dataloader_num_workers=workers)
    assert trainer.skipped_rows == {3: "OSError: line 3 is no JSON", 17: "OSError: line 17 is no JSON"}
    assert "2 rows of the training set were skipped: 3, 17" in capfd.readouterr().err
    expected = train(tmp_path, Broken({3, 17}), train_sampling_strategy="sequential", max_steps=8)
    assert losses(trainer) == pytest.approx(losses(expected), rel=1e-6), "the same steps as of rows with numbers"


def test_a_generator_ends_with_what_it_raises(tmp_path) -> None:
    class Generated(BrokenStream):
        def __iter__(self) -> Any:
            yield from Rows(iter(enumerate(self.data)), self.bad)

    with pytest.raises(OSError, match="line 3") as raised:
        train(tmp_path, Generated({3}), max_steps=2)
    notes = "\n".join(raised.value.__notes__)
    assert "a generator (a function with yield) ends when it raises" in notes
    assert "after 3 rows of the training set had been read" in notes


def test_a_stream_that_gives_nothing_any_more_is_not_asked_forever(tmp_path) -> None:
    with pytest.raises(DataError, match="100 rows of the training set in succession could not be read"):
        train(tmp_path, BrokenStream(set(range(4, 1000)), 1000), max_steps=9, per_device_train_batch_size=16)


def test_many_bad_rows_are_counted_without_a_line_each(tmp_path, capfd) -> None:
    trainer = train(tmp_path, Broken(set(range(40)), 64), num_train_epochs=1)
    assert len(trainer.skipped_rows) == 40
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 22 and "more than 20 rows are skipped: trainer.skipped_rows lists them all" in said[20]
    assert said[21].endswith("17, 18, 19 and 20 more")


def test_rows_of_a_mixture_are_listed_by_set_and_number(tmp_path, capfd) -> None:
    mixture = {"a": (Broken({3}, 16), 0.5), "b": (AllAtOnce({0, 5}, 16), 0.5)}
    trainer = train(tmp_path, mixture)
    assert trainer.skipped_rows == {
        ("a", 3): "OSError: image-3.png is truncated",
        ("b", 0): "OSError: image-0.png is truncated",
        ("b", 5): "OSError: image-5.png is truncated",
    }
    said = capfd.readouterr().err
    assert "row 5 of set 'b' of the training set is skipped: OSError" in said
    assert "3 rows of the training set were skipped: a 3, b 0, b 5" in said
    logged = trainer.state.log_history[0]
    assert {"loss", "loss_a", "loss_b"} <= set(logged)


def test_without_bad_rows_a_mixture_is_the_same(tmp_path) -> None:
    runs = [
        train(tmp_path, {"a": (Broken(set(), 16), 0.5), "b": (Broken(set(), 16), 0.5)}, skip_bad_rows=skips)
        for skips in (True, False)
    ]
    assert losses(runs[0]) == losses(runs[1])


def test_a_row_of_a_mixture_that_cannot_be_collated_has_its_number_in_its_set(tmp_path) -> None:
    odd = Broken({1}, 8)
    odd.rows[6]["x"] = "not a number"
    with pytest.raises(ValueError, match="row 6 of the set 'b' of the mixture"):
        train(tmp_path, {"a": (Broken({0}, 8), 0.5), "b": (odd, 0.5)})


@pytest.mark.parametrize(
    "order",
    [
        {"train_sampling_strategy": "group_by_length"},
        {"train_sampling_strategy": "group_by_length", "length_window": 2},
        {"max_tokens_per_batch": 40},
    ],
    ids=str,
)
def test_rows_whose_length_cannot_be_read_are_skipped_too(order: dict[str, Any], tmp_path) -> None:
    data = Broken({3, 17})
    for number, row in enumerate(data.rows):
        row["input_ids"] = [1] * (1 + number % 7)
    assert set(train(tmp_path, data, **order).skipped_rows) == {3, 17}


def test_random_rows_draw_what_they_draw_without_it(tmp_path) -> None:
    class Noisy(Broken):
        def __getitem__(self, index: int) -> Any:
            row = super().__getitem__(index)
            return {**row, "x": [value + float(torch.randn(())) for value in row["x"]]}

    assert losses(train(tmp_path, Noisy(set()))) == losses(train(tmp_path, Noisy(set()), skip_bad_rows=False))


def test_a_resumed_run_still_lists_them(tmp_path) -> None:
    data = Broken({3, 17})
    settings = {"save_strategy": "steps", "save_steps": 1}
    whole = train(tmp_path, data, **settings)
    args = TrainingArguments(
        str(tmp_path), use_cpu=True, num_train_epochs=2, per_device_train_batch_size=8, skip_bad_rows=True
    )
    resumed = Trainer(tiny.regression(), args, train_dataset=data)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-7"))
    assert resumed.skipped_rows == whole.skipped_rows


def test_a_loader_of_the_users_is_refused(tmp_path) -> None:
    with pytest.raises(NotSupportedError, match="a DataLoader as train_dataset"):
        train(tmp_path, torch.utils.data.DataLoader(Broken(set())))


def test_a_row_that_cannot_be_collated_still_has_its_number(tmp_path) -> None:
    data = Broken({0, 1}, count=8)
    data.rows[6]["x"] = "not a number"
    with pytest.raises(ValueError, match="row 6 of the training set"):
        train(tmp_path, data, train_sampling_strategy="sequential")
