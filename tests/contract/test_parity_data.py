"""Where rows come from and in which order: both libraries feed the model the same batches."""

from __future__ import annotations

import pytest
import torch

from tests.support import tiny
from tests.support.parity import check_parity, run_both, run_one

pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

SIZES = {"num_train_epochs": 2, "per_device_train_batch_size": 4}


class Spy:
    """A collator that remembers which rows it was given, and with which columns."""

    def __init__(self, collate) -> None:
        self.collate = collate
        self.seen: list = []

    def __call__(self, rows):
        rows = list(rows)
        self.seen.append([(sorted(row), float(row["labels"])) for row in rows])
        return self.collate(rows)


def fit_seen(api, data, **arguments):
    """Train, and return the rows of every batch in order."""
    spy = Spy(api.default_data_collator)
    trainer = api.fit(tiny.regression(), data, trainer={"data_collator": spy}, **{**SIZES, **arguments})
    trainer.model.eval()
    return spy.seen


SOURCES = {
    "list": tiny.regression_rows,
    "datasets": lambda n=24: datasets.Dataset.from_list(tiny.regression_rows(n)),
    "datasets in torch format": lambda n=24: datasets.Dataset.from_list(tiny.regression_rows(n)).with_format("torch"),
    "torch dataset": lambda n=24: tiny.MapDataset(tiny.regression_rows(n)),
    "subset": lambda n=24: torch.utils.data.Subset(tiny.regression_rows(2 * n), range(0, 2 * n, 2)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_source(source: str) -> None:
    theirs, _ = check_parity(lambda api: fit_seen(api, SOURCES[source]()))
    assert len(theirs.result) == 12
    assert theirs.result[:6] != theirs.result[6:], "the second epoch has an order of its own"


def fit_stream(api, *, length: int, accumulation: int):
    rows = tiny.StreamDataset(tiny.language_rows(length))
    sizes = {"max_steps": 7, "per_device_train_batch_size": 4, "gradient_accumulation_steps": accumulation}
    return api.fit(tiny.llama(), rows, **sizes)


@pytest.mark.parametrize(("length", "accumulation"), [(60, 1), (10, 1), (9, 1), (60, 2), (16, 2)])
def test_stream(length: int, accumulation: int) -> None:
    """A stream longer than the run, and streams that end and start anew before the run does."""
    check_parity(lambda api: fit_stream(api, length=length, accumulation=accumulation))


@pytest.mark.parametrize("length", [10, 9])
def test_stream_that_ends_within_an_update(length: int) -> None:
    """transformers is wrong: three batches in updates of two leave one over at the end of the stream. It is not
    applied but stays in the gradient, and is added to the next update, each divided by its own number of labels: loss
    and gradient are twice too large. Ours applies it as the update it is.
    """
    theirs, ours = run_both(lambda api: fit_stream(api, length=length, accumulation=2))
    one_by_one = run_one(lambda api: fit_stream(api, length=length, accumulation=1), "ostinato")
    assert theirs.logged("loss")[1] > 1.5 * theirs.logged("loss")[0]
    assert all(loss < 1.1 * one_by_one.logged("loss")[0] for loss in ours.logged("loss"))
    names = [event.name for event in ours.events]
    assert names.count("on_epoch_begin") == 4, "two updates an epoch, seven in all"
    assert names.count("on_substep_end") == 4, "every other update is a single batch"


@pytest.mark.parametrize("length", [60, 10])
def test_stream_of_datasets(length: int) -> None:
    def script(api):
        rows = datasets.Dataset.from_list(tiny.regression_rows(length)).to_iterable_dataset()
        api.fit(tiny.regression(), rows, max_steps=8, per_device_train_batch_size=4)

    check_parity(script)


def test_stream_without_max_steps_is_refused(api) -> None:
    with pytest.raises(ValueError, match="max_steps"):
        api.trainer(tiny.regression(), api.args(), train_dataset=tiny.StreamDataset(tiny.regression_rows()))


def test_evaluation_on_a_stream() -> None:
    def script(api):
        trainer = api.trainer(tiny.regression(), api.args(per_device_eval_batch_size=4))
        rows = tiny.StreamDataset(tiny.regression_rows(10))
        prediction = trainer.predict(rows)
        return prediction.predictions, prediction.label_ids, prediction.metrics, trainer.evaluate(rows)

    check_parity(script)


# ------------------------------------------------------------------------------------------------------------- order


@pytest.mark.parametrize(
    "order",
    [
        {"seed": 7},
        {"data_seed": 123},
        {"seed": 7, "data_seed": 123},
        {"train_sampling_strategy": "sequential"},
        {"dataloader_drop_last": True, "per_device_train_batch_size": 5},
        {"num_train_epochs": 3, "per_device_train_batch_size": 7},
    ],
    ids=lambda order: ",".join(f"{key}={value}" for key, value in order.items()),
)
def test_order(order: dict) -> None:
    check_parity(lambda api: fit_seen(api, tiny.regression_rows(), **order))


def test_data_seed_changes_the_order_and_nothing_else(api) -> None:
    orders = [fit_seen(api, tiny.regression_rows(), data_seed=seed) for seed in (1, 2)]
    assert orders[0] != orders[1]
    rows = [sorted(row for batch in order[:6] for row in batch) for order in orders]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("length_column", [False, True])
def test_grouping_by_length(length_column: bool) -> None:
    def script(api):
        rows = tiny.ragged_classification_rows(30)
        if length_column:
            rows = datasets.Dataset.from_list([{**row, "length": len(row["input_ids"])} for row in rows])
        seen = []
        collate = api.DataCollatorWithPadding(tiny.tokenizer())

        def spy(batch):
            seen.append([len(row["input_ids"]) for row in batch])
            return collate(batch)

        grouped = dict(train_sampling_strategy="group_by_length", **SIZES)
        api.fit(tiny.bert(), rows, trainer={"data_collator": spy}, **grouped)
        return seen

    theirs, _ = check_parity(script)
    assert max(theirs.result[0]) == 10, "the longest batch comes first"


# ----------------------------------------------------------------------------------------------------------- workers


@pytest.mark.parametrize("persistent", [False, True])
def test_workers(persistent: bool) -> None:
    def script(api):
        workers = {"dataloader_num_workers": 2, "dataloader_persistent_workers": persistent}
        api.fit(tiny.regression(dropout=0.3), tiny.regression_rows(), **workers, **SIZES)

    check_parity(script)


# ----------------------------------------------------------------------------------------------------------- columns


def test_columns_the_model_does_not_take() -> None:
    """By default the collator does not see them; with `remove_unused_columns=False` it would."""

    def script(api):
        rows = [{**row, "note": i} for i, row in enumerate(tiny.regression_rows())]
        plain = fit_seen(api, rows)
        as_dataset = fit_seen(api, datasets.Dataset.from_list(rows))
        return [batch[0][0] for batch in plain], [batch[0][0] for batch in as_dataset]

    theirs, _ = check_parity(script)
    assert theirs.result[0][0] == ["labels", "x"]


@pytest.mark.parametrize("name", ["label", "label_ids", "labels"])
def test_names_of_labels(name: str) -> None:
    def script(api):
        rows = [{k if k != "labels" else name: v for k, v in row.items()} for row in tiny.classification_rows()]
        if name == "label_ids":
            rows = [{**row, "label_ids": [row["label_ids"]]} for row in rows]
        api.fit(tiny.bert(), rows, **SIZES)

    check_parity(script)


def test_random_collator_with_dropout() -> None:
    """Masked language modelling: the collator draws from torch's generator, and so does dropout, one after the other.
    transformers fetches a batch ahead of the step that needs it; sharing the streams means sharing that order too.
    """

    def script(api):
        model = tiny.bert("MaskedLM")
        rows = [{"input_ids": row["input_ids"]} for row in tiny.classification_rows()]
        trainer = {"data_collator": random_mask}
        api.fit(model, rows, trainer=trainer, **SIZES, **api.ours(isolate_rng=False))

    check_parity(script)


def random_mask(rows):
    ids = torch.tensor([row["input_ids"] for row in rows])
    masked = torch.bernoulli(torch.full(ids.shape, 0.3)).bool()
    return {"input_ids": ids.masked_fill(masked, 1), "labels": ids.masked_fill(~masked, -100)}


def test_stock_collator_for_masked_language_models() -> None:
    def script(api):
        collator = api.DataCollatorForLanguageModeling(tiny.tokenizer(), mlm_probability=0.3)
        rows = [{"input_ids": row["input_ids"]} for row in tiny.classification_rows()]
        trainer = {"data_collator": collator}
        api.fit(tiny.bert("MaskedLM"), rows, trainer=trainer, **SIZES, **api.ours(isolate_rng=False))

    check_parity(script)


def test_random_collator_with_dropout_and_evaluation() -> None:
    """The evaluation set is one batch: over several, transformers would take the mean of their means."""

    def script(api):
        rows = [{"input_ids": row["input_ids"]} for row in tiny.classification_rows()]
        trainer = {"data_collator": random_mask, "eval_dataset": rows[:6]}
        schedule = {"eval_strategy": "steps", "eval_steps": 2}
        api.fit(tiny.bert("MaskedLM"), rows, trainer=trainer, **schedule, **SIZES, **api.ours(isolate_rng=False))

    check_parity(script)


def test_model_init_is_called_under_the_seed() -> None:
    def script(api):
        built = []

        def model_init():
            built.append(tiny.Regression())
            return built[-1]

        trainer = api.fit(None, tiny.regression_rows(), trainer={"model_init": model_init}, seed=3, **SIZES)
        return len(built), trainer.model is built[-1]

    check_parity(script)


def test_training_twice_goes_on_from_the_weights() -> None:
    """A second `train()` starts a new count of steps on the trained weights."""

    def script(api):
        trainer = api.fit(tiny.regression(), tiny.regression_rows(), **SIZES)
        first = trainer.state.global_step
        api.train(trainer)
        return first, trainer.state.global_step

    check_parity(script)


def test_random_augmentation_in_the_dataset() -> None:
    class Noisy(tiny.MapDataset):
        def __getitem__(self, index):
            row = super().__getitem__(index)
            return {"x": (torch.tensor(row["x"]) + 0.1 * torch.randn(4)).tolist(), "labels": row["labels"]}

    def script(api):
        rows = Noisy(tiny.regression_rows())
        api.fit(tiny.regression(dropout=0.3), rows, **SIZES, **api.ours(isolate_rng=False))

    check_parity(script)


def test_empty_dataset_is_refused() -> None:
    def script(api):
        try:
            api.fit(tiny.regression(), [], num_train_epochs=1)
        except Exception as error:
            return isinstance(error, ValueError)
        return None

    theirs, ours = run_both(script)
    assert theirs.result is not None
    assert ours.result is True
