"""In which order rows reach the model, and who decides it: windows of like lengths, token budgets, own samplers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler, WeightedRandomSampler

from ostinato import ConfigError, Trainer, TrainerCallback, TrainingArguments
from ostinato.core.notices import forget_notices
from ostinato.data.epoch_position import find_batch_rows, skip_batches
from ostinato.engine.plan import Plan
from tests.support import tiny
from tests.support.apis import Api


@pytest.fixture(autouse=True)
def fresh_notices() -> Iterator[None]:
    """Every test hears what is said once."""
    forget_notices()
    yield
    forget_notices()


LENGTHS = [3 + (17 * number) % 29 for number in range(61)]


class Noted(nn.Module):
    """A model that notes the rows of its batches: the first token of a row is its number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(128, 8)
        self.head = nn.Linear(8, 128)
        self.drop = nn.Dropout(0.1)
        self.batches: list[list[int]] = []
        self.sizes: list[tuple[int, ...]] = []

    def forward(self, input_ids, labels=None):
        if self.training:
            self.batches.append(input_ids[:, 0].tolist())
            self.sizes.append(tuple(input_ids.shape))
        logits = self.head(self.drop(self.embedding(input_ids)))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def rows_with(lengths: list[int] = LENGTHS) -> list[dict[str, Any]]:
    return [{"input_ids": [number] + [1] * (length - 1), "length": length} for number, length in enumerate(lengths)]


def padded(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.tensor([list(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in rows])
    return {"input_ids": ids, "labels": ids.masked_fill(ids == 0, -100)}


def trainer_of(out, rows: Any = None, *, keywords: dict[str, Any] | None = None, **arguments: Any) -> Trainer:
    options: dict[str, Any] = dict(
        per_device_train_batch_size=4, num_train_epochs=2, save_strategy="no", logging_steps=1, use_cpu=True,
        disable_tqdm=True, report_to="none", write_report=False,
    )  # fmt: skip
    return Trainer(
        Noted(),
        TrainingArguments(str(out), **{**options, **arguments}),
        data_collator=padded,
        train_dataset=rows_with() if rows is None else rows,
        **(keywords or {}),
    )


def trained(out, *args: Any, resume: Any = None, **kwargs: Any) -> Trainer:
    trainer = trainer_of(out, *args, **kwargs)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def noted(trainer: Trainer) -> list[list[int]]:
    return trainer.model.batches  # type: ignore[return-value]


def weights(trainer: Trainer) -> list[float]:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()]).tolist()


class StopAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            control.should_save = control.should_training_stop = True


def resumed_equals_whole(tmp_path, rows: Any = None, *, at: int, keywords: Any = None, **arguments: Any) -> None:
    """Stopped at a step and gone on in a fresh trainer: the same batches, and the same weights, bit for bit."""
    make = keywords if callable(keywords) else lambda: keywords
    whole = trained(tmp_path / "whole", rows() if callable(rows) else rows, keywords=make(), **arguments)
    first = trainer_of(tmp_path / "parts", rows() if callable(rows) else rows, keywords=make(), **arguments)
    first.add_callback(StopAt(at))
    first.train()
    rest = trained(tmp_path / "parts", rows() if callable(rows) else rows, keywords=make(), resume=True, **arguments)
    assert noted(first) + noted(rest) == noted(whole)
    assert weights(rest) == weights(whole)
    assert rest.state.global_step == whole.state.global_step == whole.state.max_steps


# ------------------------------------------------------------------------------------------------------------ windows

GROUPED = {"train_sampling_strategy": "group_by_length"}


def spread(batches: list[list[int]]) -> int:
    """How many tokens of padding batches have."""
    lengths = [[LENGTHS[row] for row in batch] for batch in batches]
    return sum(max(batch) * len(batch) - sum(batch) for batch in lengths)


@pytest.mark.parametrize("window", [-1, 3, 1000])
def test_windows_group_rows_of_like_length(tmp_path, window: int) -> None:
    trainer = trained(tmp_path, **GROUPED, length_window=window)
    batches = noted(trainer)
    first, second = batches[:16], batches[16:]
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(61))
    assert first != second
    assert spread(first) < spread(noted(trained(tmp_path))[:16]) / 2


def test_without_a_window_the_order_is_that_of_transformers(tmp_path) -> None:
    plain = noted(trained(tmp_path, **GROUPED))
    assert noted(trained(tmp_path, **GROUPED, length_window=0)) == plain
    assert noted(trained(tmp_path, **GROUPED, length_window=4)) != plain


def test_the_order_of_windows_follows_data_seed(tmp_path) -> None:
    orders = [noted(trained(tmp_path, **GROUPED, length_window=4, seed=seed, data_seed=5)) for seed in (1, 2)]
    assert orders[0] == orders[1] != noted(trained(tmp_path, **GROUPED, length_window=4, data_seed=6))


def test_windows_start_without_a_pass_over_the_data(tmp_path) -> None:
    read: list[int] = []

    class Rows(tiny.MapDataset):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    trainer = trainer_of(tmp_path, Rows(rows_with(LENGTHS * 20)), **GROUPED, length_window=8)
    next(iter(trainer.get_train_dataloader()))
    assert len(set(read)) <= 8 * 4 < 1220


def test_windows_use_a_column_of_lengths_that_the_model_does_not_take(tmp_path, capsys) -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_list(rows_with())
    # Lengths that contradict the rows show which of the two is used.
    table = table.remove_columns("length").add_column("length", [1 if number < 31 else 9 for number in range(61)])
    table = table.with_transform(lambda rows: rows)
    trainer = trainer_of(tmp_path, table, **GROUPED, length_window=1000)
    order = [row for batch in trainer.get_train_dataloader() for row in batch["input_ids"][:, 0].tolist()]
    whole = [order[start : start + 4] for start in range(0, 60, 4)]
    assert sum(len({row < 31 for row in batch}) == 2 for batch in whole) <= 2
    assert "read once more" not in capsys.readouterr().err


@pytest.mark.parametrize("at", [1, 5, 16, 17])
def test_windows_resume_anywhere(tmp_path, at: int) -> None:
    resumed_equals_whole(tmp_path, at=at, **GROUPED, length_window=2)


def test_rows_of_windows_are_known(ours: Api, tmp_path) -> None:
    loader = trainer_of(tmp_path, **GROUPED, length_window=2, data_seed=3).get_train_dataloader()
    loader.set_epoch(1)  # type: ignore[attr-defined]
    seen = [batch["input_ids"][:, 0].tolist() for batch in loader]
    assert find_batch_rows(loader, 1, range(5, 7)) == seen[5] + seen[6]
    loader.set_epoch(1)  # type: ignore[attr-defined]
    rest = [batch["input_ids"][:, 0].tolist() for batch in skip_batches(loader, 9)]
    assert rest == seen[9:]


def test_a_window_without_grouping_is_refused() -> None:
    with pytest.raises(ConfigError, match="length_window=8 with train_sampling_strategy='random'"):
        TrainingArguments("out", use_cpu=True, length_window=8)
    with pytest.raises(ConfigError, match="length_window=-2"):
        TrainingArguments("out", use_cpu=True, length_window=-2, **GROUPED)


# ------------------------------------------------------------------------------------------------------- token budgets


def area(sizes: list[tuple[int, ...]]) -> list[int]:
    return [rows * longest for rows, longest in sizes]


@pytest.mark.parametrize("accumulation", [1, 3])
def test_batches_have_as_many_rows_as_fit(tmp_path, accumulation: int, capsys) -> None:
    budget = dict(max_tokens_per_batch=120, gradient_accumulation_steps=accumulation, num_train_epochs=3)
    trainer = trained(tmp_path, **budget)
    batches, sampler = noted(trainer), trainer.get_train_dataloader().batch_sampler
    counts = [sampler.batches_in(epoch) for epoch in range(3)]  # type: ignore[union-attr]
    assert sum(counts) == len(batches)
    bounds = [sum(counts[:epoch]) for epoch in range(4)]
    for start, end in pairwise(bounds):
        assert sorted(chain(*batches[start:end])) == list(range(61))
    assert max(area(trainer.model.sizes)) <= 120  # type: ignore[arg-type]
    assert trainer.state.max_steps == sum(-(-count // accumulation) for count in counts) == trainer.state.global_step
    assert trainer.state.epoch == 3
    assert "max_tokens_per_batch=120: training batches have as many rows as fit; " in capsys.readouterr().err


def test_epochs_need_not_have_equally_many_batches(tmp_path) -> None:
    lengths = [(7 * number) % 31 + 1 for number in range(97)]
    trainer = trainer_of(tmp_path, rows_with(lengths), max_tokens_per_batch=64, num_train_epochs=8, length_window=2)
    counts = [trainer.get_train_dataloader().batch_sampler.batches_in(epoch) for epoch in range(8)]  # type: ignore
    assert len(set(counts)) > 1
    trainer.train()
    assert trainer.state.global_step == trainer.state.max_steps == sum(counts) == len(noted(trainer))
    epochs = [entry["epoch"] for entry in trainer.state.log_history if "loss" in entry]
    assert [epochs[sum(counts[: each + 1]) - 1] for each in range(8)] == list(range(1, 9))


@pytest.mark.parametrize("epochs", [0.5, 1, 2.25])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_plan_adds_up_epochs(epochs: float, accumulation: int) -> None:
    counts = [5, 7, 4, 6, 5, 5, 5]
    options: dict[str, Any] = dict(
        accumulation=accumulation, max_grad_norm=1.0, rows_per_update=4, rows_per_epoch=20, varying=counts.__getitem__
    )
    plan = Plan.for_length(counts[0], epochs=epochs, max_steps=-1, **options)
    updates = [-(-count // accumulation) for count in counts]
    whole = int(epochs)
    assert plan.max_steps == sum(updates[:whole]) + math.ceil((epochs - whole) * updates[whole])
    assert plan.epochs == math.ceil(epochs)
    for steps in range(1, sum(updates)):
        plan = Plan.for_length(counts[0], epochs=3, max_steps=steps, **options)
        assert sum(updates[: plan.epochs - 1]) < steps <= sum(updates[: plan.epochs])


@pytest.mark.parametrize("at", [1, 4, 13])
def test_token_budgets_resume_anywhere(tmp_path, at: int) -> None:
    resumed_equals_whole(tmp_path, at=at, max_tokens_per_batch=120, length_window=2)


def test_max_steps_end_a_run_of_token_budgets(tmp_path) -> None:
    assert len(noted(trained(tmp_path, max_tokens_per_batch=120, max_steps=31))) == 31


def test_a_budget_rounds_up_as_the_collator_does(tmp_path) -> None:
    class Padded:
        pad_to_multiple_of = 8

        def __call__(self, rows):
            batch = padded(rows)
            more = -batch["input_ids"].shape[1] % 8
            return {name: nn.functional.pad(values, (0, more)) for name, values in batch.items()}

    trainer = trainer_of(tmp_path, max_tokens_per_batch=120)
    trainer.data_collator = Padded()
    trainer.train()
    assert max(area(trainer.model.sizes)) <= 120  # type: ignore[arg-type]
    assert all(length % 8 == 0 for _, length in trainer.model.sizes)  # type: ignore[union-attr]


def test_the_gradient_of_a_budget_counts_rows_alike(tmp_path) -> None:
    """All rows in one step, whatever the batches: the loss of the step is the mean over all tokens."""
    losses = []
    for options in (
        {"max_tokens_per_batch": 90, "gradient_accumulation_steps": 1000},
        {"per_device_train_batch_size": 61},
    ):
        trainer = trainer_of(tmp_path, num_train_epochs=1, **options)
        trainer.model.drop.p = 0.0  # type: ignore[union-attr]
        trainer.train()
        losses.append(trainer.state.log_history[0]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"train_sampling_strategy": "sequential"}, "with train_sampling_strategy='sequential'"),
        ({"split_by_length": True}, "with split_by_length=True"),
        ({"packing": True}, "with packing=True"),
    ],
)
def test_what_contradicts_a_budget_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=f"max_tokens_per_batch=9 {text}"):
        TrainingArguments("out", use_cpu=True, max_tokens_per_batch=9, **arguments)


def test_a_budget_needs_numbered_rows(tmp_path) -> None:
    trainer = trainer_of(tmp_path, tiny.StreamDataset(rows_with()), max_steps=2, max_tokens_per_batch=90)
    with pytest.raises(ConfigError, match="max_tokens_per_batch=90 with a training set that can only be iterated"):
        trainer.train()


def test_a_budget_and_an_own_order_are_refused(tmp_path) -> None:
    class Mine(Trainer):
        def _get_train_sampler(self, train_dataset=None):
            return SequentialSampler(self.train_dataset)

    args = TrainingArguments(str(tmp_path), use_cpu=True, max_tokens_per_batch=90)
    with pytest.raises(ConfigError, match=r"max_tokens_per_batch=90 with Mine\._get_train_sampler"):
        Mine(Noted(), args, data_collator=padded, train_dataset=rows_with()).train()


# ----------------------------------------------------------------------------------------------- samplers of the user


class Backwards(Sampler[int]):
    """An order of the user's own."""

    def __init__(self, count: int = 61) -> None:
        self.count = count
        self.epochs: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count - 1, -1, -1))

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


def test_rows_come_in_the_order_of_the_sampler(tmp_path) -> None:
    sampler = Backwards()
    trainer = trained(tmp_path, keywords={"sampler": sampler})
    assert list(chain(*noted(trainer))) == [*range(60, -1, -1), *range(60, -1, -1)]
    assert [len(batch) for batch in noted(trainer)[:16]] == [4] * 15 + [1]
    assert sorted(set(sampler.epochs)) == [0, 1]


def test_a_sampler_decides_how_long_an_epoch_is(tmp_path) -> None:
    trainer = trained(tmp_path, keywords={"sampler": WeightedRandomSampler([1.0] * 30 + [0.0] * 31, 10)})
    assert trainer.state.max_steps == 6
    assert max(chain(*noted(trainer))) < 30
    summary = trainer.state.log_history[-1]
    assert summary["train_samples_per_second"] == pytest.approx(20 / summary["train_runtime"], rel=0.05)


def test_batches_are_those_of_the_batch_sampler(tmp_path) -> None:
    batches = [[3, 1], [5], [7, 8, 9], [0]]
    trainer = trained(tmp_path, keywords={"batch_sampler": batches}, gradient_accumulation_steps=3)
    assert noted(trainer) == batches * 2
    assert trainer.state.max_steps == trainer.state.global_step == 4


OWN = {
    "sampler": lambda: {"sampler": Backwards()},
    "random sampler": lambda: {"sampler": RandomSampler(range(61))},
    "weighted sampler": lambda: {"sampler": WeightedRandomSampler([1.0, 2.0] * 30, 40)},
    "batch sampler": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(61)), 5, drop_last=False)},
    "own generator": lambda: {"sampler": RandomSampler(range(61), generator=torch.Generator().manual_seed(3))},
}


@pytest.mark.parametrize("at", [3, 12, 19])
@pytest.mark.parametrize("own", OWN)
def test_own_orders_resume(tmp_path, own: str, at: int) -> None:
    resumed_equals_whole(tmp_path, at=at, keywords=OWN[own])


def test_a_sampler_without_a_length_needs_max_steps(tmp_path) -> None:
    class Endless:
        def __iter__(self):
            return iter(range(61))

    with pytest.raises(ConfigError, match="max_steps has to be specified"):
        trained(tmp_path, keywords={"sampler": Endless()})
    assert len(noted(trained(tmp_path, keywords={"sampler": Endless()}, max_steps=18))) == 18


CONTRADICTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], Any, str]] = {
    "both": ({"sampler": [0], "batch_sampler": [[0]]}, {}, None, "sampler= and batch_sampler= were both passed"),
    "grouped": ({"sampler": [0]}, GROUPED, None, "sampler= with train_sampling_strategy='group_by_length'"),
    "budget": (
        {"batch_sampler": [[0]]},
        {"max_tokens_per_batch": 9},
        None,
        "batch_sampler= with max_tokens_per_batch=9",
    ),
    "cut": ({"batch_sampler": [[0]]}, {"split_by_length": True}, None, "batch_sampler= with split_by_length=True"),
    "stream": ({"sampler": [0]}, {"max_steps": 1}, tiny.StreamDataset(rows_with()), "can only be iterated over"),
    "loader": ({"sampler": [0]}, {}, DataLoader(rows_with()), "a DataLoader as train_dataset with sampler="),  # type: ignore
    "grouped loader": ({}, GROUPED, DataLoader(rows_with()), "with train_sampling_strategy='group_by_length'"),  # type: ignore
    "packed loader": ({}, {"packing": True}, DataLoader(rows_with()), "with packing=True"),  # type: ignore
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_two_orders_are_refused(tmp_path, case: str) -> None:
    keywords, arguments, rows, text = CONTRADICTIONS[case]
    with pytest.raises(ConfigError, match=text):
        trainer_of(tmp_path, rows, keywords=keywords, **arguments)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("sampler", 5, "sampler is a int"),
        ("sampler", RandomSampler, "sampler is the class RandomSampler"),
        ("sampler", BatchSampler(range(3), 2, drop_last=False), "sampler is a BatchSampler, which yields batches"),
        ("batch_sampler", DataLoader(range(3)), "batch_sampler is a DataLoader"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_sampler_is_refused(tmp_path, name: str, value: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        trainer_of(tmp_path, keywords={name: value})


# ----------------------------------------------------------------------------------------------- loaders of the user


def loader_of(rows: Any = None, **options: Any) -> DataLoader[Any]:
    rows = rows_with() if rows is None else rows
    return DataLoader(rows, **{"batch_size": 6, "collate_fn": padded, **options})


def test_the_batches_of_a_loader_reach_the_model_as_they_are(tmp_path, capsys) -> None:
    loader = loader_of(shuffle=False)
    trainer = trainer_of(tmp_path, loader)
    assert trainer.get_train_dataloader() is loader
    trainer.train()
    assert noted(trainer) == [list(range(start, min(start + 6, 61))) for start in range(0, 61, 6)] * 2
    assert trainer.state.max_steps == 22
    assert "train_dataset is a DataLoader: its batches reach the model unchanged" in capsys.readouterr().err


def test_nothing_is_left_out_of_the_batches_of_a_loader(tmp_path) -> None:
    seen: set[str] = set()

    class Mine(Trainer):
        def compute_loss(self, model, inputs, *args, **kwargs):
            seen.update(inputs)
            inputs.pop("extra")
            return super().compute_loss(model, inputs, *args, **kwargs)

    loader = loader_of(collate_fn=lambda rows: {**padded(rows), "extra": torch.zeros(len(rows))})
    args = TrainingArguments(str(tmp_path), use_cpu=True, max_steps=1)
    Mine(Noted(), args, train_dataset=loader).train()
    assert seen == {"input_ids", "labels", "extra"}


def test_a_loader_without_a_length_needs_max_steps(tmp_path) -> None:
    loader = DataLoader(tiny.StreamDataset(rows_with()), batch_size=5, collate_fn=padded)
    with pytest.raises(ConfigError, match="max_steps has to be specified"):
        trainer_of(tmp_path, loader)
    trainer = trained(tmp_path, loader, max_steps=20)
    assert [len(batch) for batch in noted(trainer)] == ([5] * 12 + [1] + [5] * 7)


@pytest.mark.parametrize("at", [1, 11, 15])
@pytest.mark.parametrize("options", [{"shuffle": True}, {"shuffle": False, "drop_last": True}])
def test_a_loader_resumes(tmp_path, at: int, options: dict[str, Any]) -> None:
    resumed_equals_whole(tmp_path, lambda: loader_of(**options), at=at)


def test_a_loader_with_a_generator_of_its_own_resumes(tmp_path) -> None:
    resumed_equals_whole(tmp_path, lambda: loader_of(shuffle=True, generator=torch.Generator().manual_seed(5)), at=15)


def test_a_loader_that_draws_random_numbers_resumes(tmp_path) -> None:
    def noisy(rows):
        batch = padded(rows)
        batch["labels"] = batch["labels"].masked_fill(torch.rand(batch["labels"].shape) < 0.3, -100)
        return batch

    resumed_equals_whole(tmp_path, lambda: loader_of(shuffle=True, collate_fn=noisy), at=5)


def test_the_epochs_of_a_loader_are_told_to_its_parts(tmp_path) -> None:
    sampler = Backwards()
    trained(tmp_path, loader_of(sampler=sampler))
    assert sampler.epochs == [0, 1]


def test_a_loader_is_evaluated_and_predicted(tmp_path) -> None:
    rows = rows_with([6] * 10)
    trainer = trainer_of(tmp_path, rows)
    trainer.model.batches.clear()  # type: ignore[union-attr]
    by_rows, by_loader = trainer.evaluate(rows), trainer.evaluate(loader_of(rows, batch_size=3))  # type: ignore[arg-type]
    assert by_loader["eval_loss"] == pytest.approx(by_rows["eval_loss"], rel=1e-5)
    first, second = trainer.predict(rows), trainer.predict(loader_of(rows, batch_size=3))  # type: ignore[arg-type]
    assert torch.equal(torch.as_tensor(first.predictions), torch.as_tensor(second.predictions))
    trainer.eval_dataset = {"a": loader_of(rows), "b": rows}
    assert {"eval_a_loss", "eval_b_loss"} <= set(trainer.evaluate())


def test_a_loader_of_evaluation_stays_as_it_is_while_training(tmp_path) -> None:
    loader = loader_of(rows_with([6] * 10), num_workers=1)
    keywords = {"eval_dataset": loader, "compute_metrics": lambda prediction: {"rows": len(prediction.label_ids)}}
    trainer = trainer_of(tmp_path, keywords=keywords, eval_strategy="epoch", num_train_epochs=1)
    trainer.train()
    assert loader.num_workers == 1
    assert [entry["eval_rows"] for entry in trainer.state.log_history if "eval_rows" in entry] == [10]
