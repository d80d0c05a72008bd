"""Training on several sets, mixed by weight, with the loss of each beside the loss of all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from ostinato import ConfigError, DataError, Trainer, TrainerCallback, TrainingArguments
from ostinato.core.notices import forget_notices
from ostinato.data.epoch_position import find_batch_rows
from ostinato.data.mixture import Mixture
from tests.support import tiny


@pytest.fixture(autouse=True)
def fresh_notices() -> Iterator[None]:
    """Every test hears what is said once."""
    forget_notices()
    yield
    forget_notices()


def rows_of_set(first: int, count: int, targets: int = 1) -> list[dict[str, Any]]:
    """Rows that know their number; a row of a language has `targets` of five labels."""
    generator = torch.Generator().manual_seed(first)
    rows = []
    for number in range(first, first + count):
        ids = torch.randint(1, tiny.VOCAB, (5,), generator=generator)
        labels = ids.clone()
        labels[targets:] = -100
        rows.append({"input_ids": ids, "labels": labels, "number": number})
    return rows


A, B = rows_of_set(0, 30, targets=1), rows_of_set(100, 14, targets=5)
MIXED = {"a": (A, 0.75), "b": (B, 0.25)}


def trainer_of(out, data: Any = None, model: nn.Module | None = None, **arguments: Any) -> Trainer:
    options: dict[str, Any] = dict(
        per_device_train_batch_size=4, num_train_epochs=2, save_strategy="no", logging_steps=1, use_cpu=True,
        disable_tqdm=True, report_to="none", max_grad_norm=0, learning_rate=1e-2,
    )  # fmt: skip
    args = TrainingArguments(str(out), **{**options, **arguments})
    return Trainer(model or tiny.tied(), args, train_dataset=MIXED if data is None else data)


def logs_of(trainer: Trainer) -> list[dict[str, float]]:
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def sum_of_losses(model: nn.Module, rows: list[dict[str, Any]]) -> float:
    ids, labels = (torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels"))
    with torch.no_grad():
        logits = model(ids)["logits"]
    return float(nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum"))


def targets_in(rows: list[dict[str, Any]]) -> int:
    return sum(int((row["labels"] != -100).sum()) for row in rows)


@pytest.mark.parametrize(("accumulation", "window"), [(1, 1), (3, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("build", [tiny.tied, tiny.deaf])
def test_the_loss_of_a_set_is_the_mean_over_its_targets(tmp_path, build: Any, accumulation: int, window: int) -> None:
    """The model stands still, so that all losses can be computed anew, from the rows that each step had."""
    trainer = trainer_of(
        tmp_path, model=build(), learning_rate=0.0, gradient_accumulation_steps=accumulation, logging_steps=window
    )
    trainer.train()
    mixture = Mixture(MIXED)
    loader = trainer.get_train_dataloader()
    per_epoch = len(loader)
    starts = [(epoch, first) for epoch in range(2) for first in range(0, per_epoch, accumulation)]
    steps = [
        find_batch_rows(loader, epoch, range(first, min(first + accumulation, per_epoch))) for epoch, first in starts
    ]
    found = [entry for entry in logs_of(trainer) if entry["step"] % window == 0]
    assert len(found) == len(steps) // window
    for number, entry in enumerate(found):
        logged, sums, weights = 0.0, {"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}
        for step in steps[number * window : (number + 1) * window]:
            assert step is not None
            rows = {name: [mixture[row] for row in step if mixture.source_of(row) == name] for name in ("a", "b")}
            total = sum(map(targets_in, rows.values()))
            for name, own in rows.items():
                if own:
                    sums[name] += sum_of_losses(trainer.model, own) / total
                    weights[name] += targets_in(own) / total
        logged = sum(sums.values()) / window
        assert entry["loss"] == pytest.approx(logged, rel=1e-5)
        for name in ("a", "b"):
            if weights[name]:
                assert entry[f"loss_{name}"] == pytest.approx(sums[name] / weights[name], rel=1e-5)
            else:
                assert f"loss_{name}" not in entry


def test_the_gradient_is_that_of_the_rows_together(tmp_path) -> None:
    """A step on two sets is a step on their rows: cutting by set changes nothing."""
    trainer = trainer_of(tmp_path, per_device_train_batch_size=44, num_train_epochs=1, optim="sgd")
    rows = find_batch_rows(trainer.get_train_dataloader(), 0, range(1))
    mixture, alone = Mixture(MIXED), tiny.tied()
    assert rows is not None
    sum_by_hand = torch.zeros(())
    for row in map(mixture.__getitem__, rows):
        logits = alone(row["input_ids"][None])["logits"]
        sum_by_hand = sum_by_hand + nn.functional.cross_entropy(logits[0], row["labels"], reduction="sum")
    loss = sum_by_hand / targets_in([mixture[row] for row in rows])
    loss.backward()
    trainer.train()
    assert logs_of(trainer)[0]["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for mine, expected in zip(trainer.model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine, expected - 1e-2 * expected.grad, rtol=1e-4, atol=1e-6)


def test_an_epoch_has_as_many_rows_as_all_sets(tmp_path, capsys) -> None:
    trainer = trainer_of(tmp_path)
    trainer.train()
    assert trainer.state.max_steps == 2 * 11
    assert trainer.num_examples(trainer.get_train_dataloader()) == 44
    said = capsys.readouterr().err
    assert "an epoch of the mixture is 44 rows: a 75 % (33 rows, 1.1 passes), b 25 % (11 rows, 0.786 passes)" in said
    assert "columns of the training set: kept input_ids, labels; left out number" in said


def test_a_table_and_a_list_can_be_mixed(tmp_path, capsys) -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_list(
        [{**row, "input_ids": row["input_ids"].tolist(), "labels": row["labels"].tolist()} for row in A]
    )
    trainer = trainer_of(tmp_path, {"A": (table, 0.5), "b": (B, 0.5)}, max_steps=4)
    trainer.train()
    assert {"loss_A", "loss_b"} <= set(logs_of(trainer)[0])
    said = capsys.readouterr().err
    assert "columns of the 'A' training set: kept input_ids, labels; left out number" in said


def test_sets_without_weights_weigh_what_they_are_long(tmp_path) -> None:
    trainer = trainer_of(tmp_path, {"a": A, "b": B}, num_train_epochs=1)
    trainer.train()
    assert trainer.state.max_steps == 11
    assert {"loss_a", "loss_b"} <= set().union(*logs_of(trainer))


class StopAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            control.should_save = control.should_training_stop = True


@pytest.mark.parametrize("at", [1, 4, 11, 13])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_mixture_resumes_anywhere(tmp_path, at: int, accumulation: int) -> None:
    """Also between two logs: what was added up of each set is in the checkpoint."""
    options: dict[str, Any] = dict(logging_steps=3, gradient_accumulation_steps=accumulation, num_train_epochs=3)
    whole = trainer_of(tmp_path / "whole", **options)
    whole.train()
    first = trainer_of(tmp_path / "parts", **options)
    first.add_callback(StopAt(at))
    first.train()
    rest = trainer_of(tmp_path / "parts", **options)
    rest.train(resume_from_checkpoint=True)
    assert logs_of(rest) == logs_of(whole)
    for mine, expected in zip(rest.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, expected)


def test_a_step_that_is_refused_counts_for_no_set(tmp_path) -> None:
    class Broken(Trainer):
        def training_step(self, model, inputs, *args, **kwargs):
            loss = super().training_step(model, inputs, *args, **kwargs)
            return loss * float("nan") if self.state.global_step == 1 else loss

    args = TrainingArguments(
        str(tmp_path), use_cpu=True, max_steps=4, logging_steps=4, learning_rate=0.0, save_strategy="no",
        per_device_train_batch_size=4, disable_tqdm=True,
    )  # fmt: skip
    trainer = Broken(tiny.tied(), args, train_dataset=MIXED)
    trainer.train()
    (entry,) = logs_of(trainer)
    assert entry["loss"] != entry["loss"]
    assert 1 < entry["loss_a"] < 10
    assert 1 < entry["loss_b"] < 10


def test_every_row_of_a_mixture_is_cut_by_length_in_its_set(tmp_path) -> None:
    """`split_by_length` and a mixture: the same losses as without."""
    logs = []
    for split in (False, True):
        trainer = trainer_of(tmp_path, split_by_length=split, learning_rate=0.0, gradient_accumulation_steps=2)
        trainer.train()
        logs.append(logs_of(trainer))
    assert len(logs[0]) == len(logs[1])
    for one, other in zip(*logs, strict=True):
        assert one.keys() == other.keys()
        for name in ("loss", "loss_a", "loss_b"):
            assert one.get(name) == pytest.approx(other.get(name), rel=1e-5)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_row_that_cannot_be_joined_is_named(tmp_path, workers: int) -> None:
    other = [{**row, "labels": row["labels"][:4] if row["number"] == 105 else row["labels"]} for row in B]
    trainer = trainer_of(
        tmp_path, {"a": (A, 0.5), "b": (other, 0.5)}, dataloader_num_workers=workers, per_device_train_batch_size=8
    )
    with pytest.raises(DataError, match="row 5 of the set 'b' of the mixture has 5 tokens and 4 labels"):
        trainer.train()


def test_sets_with_other_columns_are_told_apart(tmp_path) -> None:
    def join(rows):
        return {name: torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels")}

    other = [{"input_ids": row["input_ids"], "target": row["labels"]} for row in B]
    trainer = trainer_of(tmp_path, {"a": (A, 0.5), "b": (other, 0.5)}, remove_unused_columns=False)
    trainer.data_collator = join
    with pytest.raises(KeyError) as caught:
        trainer.train()
    notes = "\n".join(caught.value.__notes__)
    assert "rows 1, 6 of the set 'b' of the mixture were collated by" in notes
    assert "while rows of set 'b' of the mixture were collated" in notes
    assert "column 'labels' differs between the sets of the mixture: 'a' has it, 'b' lacks it" in notes


def test_splits_are_no_mixture(tmp_path) -> None:
    with pytest.raises(DataError, match=r"'train' and 'test'|splits"):
        trainer_of(tmp_path, {"train": A, "test": B}).train()


@pytest.mark.parametrize(
    "arguments",
    [
        {"train_sampling_strategy": "group_by_length"},
        {"max_tokens_per_batch": 50},
        {"train_sampling_strategy": "sequential"},
    ],
)
def test_another_order_is_refused(tmp_path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="a mixture of training sets with"):
        trainer_of(tmp_path, **arguments)


def test_a_dict_of_evaluation_sets_stays_what_it_is(tmp_path) -> None:
    trainer = trainer_of(tmp_path, max_steps=1)
    assert {"eval_a_loss", "eval_b_loss"} <= set(trainer.evaluate({"a": A, "b": B}))


def test_an_empty_set_of_a_mixture_is_named(tmp_path) -> None:
    args = TrainingArguments(str(tmp_path), use_cpu=True, max_steps=1, save_strategy="no")
    with pytest.raises(ValueError, match="'b'"):
        Trainer(tiny.regression(), args, train_dataset={"a": (tiny.regression_rows(8), 0.5), "b": ([], 0.5)}).train()
