"""How long a run is, and when it logs, evaluates and saves: the same events at the same steps in both libraries."""

from __future__ import annotations

import pytest

from tests.support import tiny
from tests.support.parity import check_parity

pytest.importorskip("transformers")

# Evaluation and saving do not touch training's random numbers in ostinato; to compare runs with dropout, share them as
# transformers does.
SHARED = {"isolate_rng": False}


def fit(api, *, dropout: float = 0.0, rows: int = 24, **arguments):
    """24 rows in batches of 4: six steps an epoch, with an evaluation set of ten rows at hand."""
    sizes = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "num_train_epochs": 2}
    trainer = {"eval_dataset": tiny.regression_rows(10, seed=2)}
    model, data = tiny.regression(dropout=dropout), tiny.regression_rows(rows)
    return api.fit(model, data, trainer=trainer, **{**sizes, **arguments})


# ------------------------------------------------------------------------------------------------------------ length


@pytest.mark.parametrize("epochs", [0.5, 1, 1.5, 2.34, 3.0])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_number_of_epochs(epochs: float, accumulation: int) -> None:
    check_parity(lambda api: fit(api, num_train_epochs=epochs, gradient_accumulation_steps=accumulation))


@pytest.mark.parametrize("max_steps", [1, 4, 6, 15])
def test_number_of_steps(max_steps: int) -> None:
    _, ours = check_parity(lambda api: fit(api, max_steps=max_steps))
    assert ours.state["global_step"] == max_steps


@pytest.mark.parametrize(("rows", "accumulation"), [(23, 2), (25, 4), (3, 4), (16, 3)])
def test_partial_batches_and_updates_of_a_token_counted_loss(rows: int, accumulation: int) -> None:
    """Epoch, step and event counts where neither the batches nor the updates fill up."""

    def script(api):
        sizes = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": accumulation, "num_train_epochs": 2}
        api.fit(tiny.llama(), tiny.language_rows(rows), **sizes)

    check_parity(script)


def test_more_steps_than_an_epoch_with_partial_updates() -> None:
    def script(api):
        sizes = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "max_steps": 7}
        api.fit(tiny.llama(), tiny.language_rows(22), **sizes)

    check_parity(script)


def test_dropped_last_batch() -> None:
    _, ours = check_parity(lambda api: fit(api, rows=23, dataloader_drop_last=True))
    assert ours.state["global_step"] == 10


# ----------------------------------------------------------------------------------------------------------- logging


@pytest.mark.parametrize(
    "logging",
    [
        {"logging_steps": 5},
        {"logging_steps": 5, "logging_first_step": True},
        {"logging_steps": 0.25},
        {"logging_steps": 0.3, "logging_first_step": True},
        {"logging_strategy": "epoch"},
        {"logging_strategy": "no"},
        {"logging_steps": 500},
    ],
    ids=lambda logging: ",".join(f"{key}={value}" for key, value in logging.items()),
)
def test_logging(logging: dict) -> None:
    check_parity(lambda api: fit(api, dropout=0.2, **logging))


@pytest.mark.parametrize("count", ["all", "non_padding"])
def test_number_of_tokens_seen(count: str) -> None:
    def script(api):
        sizes = {"per_device_train_batch_size": 4, "num_train_epochs": 1}
        trainer = {"data_collator": api.DataCollatorWithPadding(tiny.tokenizer())}
        rows = tiny.ragged_classification_rows()
        api.fit(tiny.bert(), rows, trainer=trainer, include_num_input_tokens_seen=count, **sizes)

    theirs, _ = check_parity(script)
    assert theirs.state["num_input_tokens_seen"] > 0


# -------------------------------------------------------------------------------------------------------- evaluation


@pytest.mark.parametrize(
    "evaluation",
    [
        {"eval_strategy": "steps", "eval_steps": 4},
        {"eval_strategy": "steps", "eval_steps": 0.3},
        {"eval_strategy": "steps", "logging_steps": 3},
        {"eval_strategy": "epoch"},
        {"eval_strategy": "epoch", "eval_on_start": True},
        {"eval_strategy": "steps", "eval_steps": 2, "eval_delay": 5},
        {"eval_strategy": "epoch", "eval_delay": 2},
        {"eval_strategy": "no", "do_eval": True},
    ],
    ids=lambda evaluation: ",".join(f"{key}={value}" for key, value in evaluation.items()),
)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_evaluation(evaluation: dict, dropout: float) -> None:
    """With dropout the streams are shared: an evaluation draws a number, and the next steps show that it did."""
    check_parity(lambda api: fit(api, dropout=dropout, **evaluation, **api.ours(**SHARED)))


def test_evaluation_of_bert_in_between() -> None:
    def script(api):
        sizes = {"per_device_train_batch_size": 4, "num_train_epochs": 2, "eval_strategy": "steps", "eval_steps": 5}
        trainer = {"eval_dataset": tiny.classification_rows(10, seed=2)}
        api.fit(tiny.bert(), tiny.classification_rows(), trainer=trainer, **sizes, **api.ours(**SHARED))

    check_parity(script)


def test_evaluation_of_several_sets() -> None:
    def script(api):
        sets = {"near": tiny.regression_rows(6, seed=2), "far": tiny.regression_rows(10, seed=3)}
        sizes = {"per_device_train_batch_size": 4, "num_train_epochs": 1, "eval_strategy": "steps", "eval_steps": 3}
        trainer = api.fit(tiny.regression(), tiny.regression_rows(), trainer={"eval_dataset": sets}, **sizes)
        whole, far, test = (
            trainer.evaluate(),
            trainer.evaluate(eval_dataset="far"),
            trainer.evaluate(metric_key_prefix="test"),
        )
        whole.pop("eval_loss", None), test.pop("test_loss", None)  # the mean over the sets, which is ours alone
        return whole, far, test

    check_parity(script)


# ------------------------------------------------------------------------------------------------------------ saving


def checkpoints(record) -> list[str]:
    return sorted({name.split("/")[0] for name in record.files if name.startswith("checkpoint-")})


@pytest.mark.parametrize(
    "saving",
    [
        {"save_strategy": "steps", "save_steps": 5},
        {"save_strategy": "steps", "save_steps": 0.5},
        {"save_strategy": "epoch"},
        {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 2},
        {"save_strategy": "steps", "save_steps": 500},
        {"save_strategy": "epoch", "save_only_model": True},
    ],
    ids=lambda saving: ",".join(f"{key}={value}" for key, value in saving.items()),
)
def test_saving(saving: dict) -> None:
    theirs, ours = check_parity(lambda api: fit(api, dropout=0.3, **saving, **api.ours(**SHARED)))
    assert checkpoints(theirs) == checkpoints(ours)


@pytest.mark.parametrize(
    "best",
    [
        {"eval_strategy": "epoch", "save_strategy": "epoch"},
        {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 3, "save_steps": 3},
        {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 3, "save_steps": 3, "save_total_limit": 1},
        {"eval_strategy": "epoch", "save_strategy": "best", "metric_for_best_model": "loss"},
        {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "best", "metric_for_best_model": "eval_score"},
        {
            "eval_strategy": "epoch",
            "save_strategy": "epoch",
            "metric_for_best_model": "score",
            "greater_is_better": False,
        },
    ],
    ids=lambda best: ",".join(str(value) for value in best.values()),
)
def test_best_model(best: dict) -> None:
    """Which evaluation was the best, where it is kept, and that its weights come back at the end."""

    def script(api):
        trainer = {"eval_dataset": against(), "compute_metrics": score}
        sizes = {"per_device_train_batch_size": 4, "num_train_epochs": 3, "learning_rate": 0.05}
        model, rows = tiny.regression(), tiny.regression_rows()
        api.fit(model, rows, trainer=trainer, load_best_model_at_end=True, **sizes, **best, **api.ours(**SHARED))

    theirs, ours = check_parity(script)
    assert theirs.state["best_global_step"] < theirs.state["global_step"]
    if best.get("save_total_limit") == 1:
        # transformers deletes the newest checkpoint when training ends: nothing is left to go on from.
        assert checkpoints(theirs) == [f"checkpoint-{theirs.state['best_global_step']}"]
        assert sorted(checkpoints(ours)) == sorted([*checkpoints(theirs), f"checkpoint-{ours.state['global_step']}"])
    else:
        assert checkpoints(theirs) == checkpoints(ours)


def against() -> list[dict]:
    """Rows on which training first helps, then hurts: the best model is not the last."""
    return [{"x": row["x"], "labels": 0.3 * row["labels"]} for row in tiny.regression_rows(10, seed=2)]


def score(prediction) -> dict[str, float]:
    """The larger, the better: minus the mean absolute error."""
    return {"score": -float(abs(prediction.predictions - prediction.label_ids).mean())}


@pytest.mark.parametrize("patience", [1, 2])
def test_early_stopping(patience: int) -> None:
    def script(api):
        trainer = {
            "eval_dataset": against(),
            "callbacks": [api.EarlyStoppingCallback(early_stopping_patience=patience)],
        }
        sizes = {"per_device_train_batch_size": 4, "num_train_epochs": 8, "learning_rate": 0.05}
        best = {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 3, "save_steps": 3}
        model, rows = tiny.regression(), tiny.regression_rows()
        api.fit(
            model, rows, trainer=trainer, load_best_model_at_end=True, metric_for_best_model="loss", **sizes, **best
        )

    theirs, _ = check_parity(script)
    assert theirs.state["global_step"] < 48


def test_early_stopping_with_a_threshold() -> None:
    def script(api):
        stop = api.EarlyStoppingCallback(early_stopping_patience=1, early_stopping_threshold=0.5)
        trainer = {"eval_dataset": against(), "callbacks": [stop]}
        sizes = {"per_device_train_batch_size": 4, "num_train_epochs": 8, "learning_rate": 0.05}
        best = {"eval_strategy": "epoch", "save_strategy": "epoch", "metric_for_best_model": "loss"}
        api.fit(
            tiny.regression(), tiny.regression_rows(), trainer=trainer, load_best_model_at_end=True, **sizes, **best
        )

    check_parity(script)


def test_early_stopping_without_keeping_the_best() -> None:
    def script(api):
        trainer = {"eval_dataset": against(), "callbacks": [api.EarlyStoppingCallback(early_stopping_patience=1)]}
        sizes = {"per_device_train_batch_size": 4, "num_train_epochs": 8, "learning_rate": 0.05}
        evaluation = {"eval_strategy": "epoch", "metric_for_best_model": "eval_loss", "greater_is_better": False}
        api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, **sizes, **evaluation)

    check_parity(script)
