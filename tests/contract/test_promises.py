"""What ostinato promises beyond transformers: invariance to cutting and to schedules, and honesty about NaN."""

from __future__ import annotations

import copy
import math
import random

import numpy as np
import pytest
import torch
from torch import nn

import ostinato
from tests.support import tiny
from tests.support.parity import run_one
from tests.support.records import assert_same, first_difference

SIZES = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "num_train_epochs": 2}


# ----------------------------------------------------------------------------- weights do not depend on the schedule


SCHEDULES = {
    "silence": {"logging_strategy": "no"},
    "log every 3": {"logging_steps": 3},
    "evaluate every 2": {"eval_strategy": "steps", "eval_steps": 2},
    "evaluate every epoch": {"eval_strategy": "epoch"},
    "evaluate at the start": {"eval_strategy": "epoch", "eval_on_start": True},
    "save every 5": {"save_strategy": "steps", "save_steps": 5},
    "save every epoch, keep one": {"save_strategy": "epoch", "save_total_limit": 1},
    "save the best": {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_strategy": "best",
        "metric_for_best_model": "loss",
    },
    "evaluate and save": {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 4},
}


def noisy_collator(rows):
    """Draws from every global stream, in training and in evaluation."""
    batch = {"x": torch.tensor([row["x"] for row in rows]), "labels": torch.tensor([row["labels"] for row in rows])}
    batch["x"] = batch["x"] + 0.1 * torch.randn_like(batch["x"]) + random.random() * 0.1 + np.random.rand() * 0.1
    return batch


def trained_weights(*, collator=None, callbacks=(), **arguments):
    def script(api):
        trainer = {"eval_dataset": tiny.regression_rows(10, seed=2), "callbacks": list(callbacks)}
        if collator is not None:
            trainer["data_collator"] = collator
        api.fit(tiny.regression(dropout=0.3), tiny.regression_rows(), trainer=trainer, **{**SIZES, **arguments})

    return run_one(script, "ostinato").weights


@pytest.fixture(scope="module")
def reference():
    """The weights of a run that others are compared with, trained once: `reference(**as_for_trained_weights)`."""
    made = {}

    def get(**options):
        name = repr(sorted(options.items()))
        if name not in made:
            made[name] = trained_weights(**options)
        return made[name]

    return get


@pytest.mark.parametrize("collator", [None, noisy_collator], ids=["plain rows", "random rows"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_weights_do_not_depend_on_the_schedule(schedule: str, collator, reference) -> None:
    expected = reference(collator=collator)
    assert_same(expected, trained_weights(collator=collator, **SCHEDULES[schedule]), "weights")


def test_sharing_the_streams_makes_them_depend() -> None:
    """The control experiment: with the streams shared, as transformers does, evaluation leaves its mark."""
    shared = {"collator": noisy_collator, "isolate_rng": False}
    evaluated = {"eval_strategy": "steps", "eval_steps": 2}
    assert first_difference(trained_weights(**shared), trained_weights(**shared, **evaluated))


def drawing(*events: str):
    """A callback that draws from every global stream at the given events."""

    def draw(self, args, state, control, **kwargs):
        torch.rand(3)
        random.random()
        np.random.rand()

    return type("Draw", (ostinato.TrainerCallback,), dict.fromkeys(events, draw))()


@pytest.mark.parametrize(
    "events",
    [
        ("on_train_begin", "on_epoch_begin", "on_epoch_end"),
        ("on_step_begin",),
        ("on_step_end",),
        ("on_pre_optimizer_step", "on_optimizer_step"),
        ("on_log", "on_evaluate", "on_save", "on_prediction_step"),
    ],
    ids=lambda events: events[0],
)
def test_callbacks_that_draw_random_numbers_change_nothing(events: tuple[str, ...], reference) -> None:
    schedule = {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "epoch"}
    assert_same(reference(**schedule), trained_weights(callbacks=[drawing(*events)], **schedule), "weights")


def test_drawing_between_micro_batches_changes_nothing() -> None:
    accumulate = {"gradient_accumulation_steps": 2}
    reference = trained_weights(**accumulate)
    assert_same(reference, trained_weights(callbacks=[drawing("on_substep_end")], **accumulate), "weights")


# -------------------------------------------------------------------------------- gradients do not depend on the cut


CUTS = [(16, 1), (4, 4), (1, 16)]


def plain_loss(api):
    """The override that everybody writes: the model's own mean loss; the number of items is not used."""

    class Own(api.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(**inputs)
            loss = outputs["loss"]
            return (loss, outputs) if return_outputs else loss

    return {"cls": Own}


def popped_labels(api):
    """The other one that everybody writes: labels taken out, a loss of one's own."""

    class Own(api.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            labels = inputs.pop("labels")
            outputs = model(**inputs)
            loss = nn.functional.cross_entropy(outputs["logits"].flatten(0, -2), labels.flatten())
            return (loss, outputs) if return_outputs else loss

    return {"cls": Own}


def deaf_function(api):
    """A `compute_loss_func` that does not use the number of items."""

    def loss(outputs, labels, num_items_in_batch=None):
        return nn.functional.cross_entropy(outputs["logits"].flatten(0, -2), labels.flatten())

    return {"compute_loss_func": loss}


def nothing(api):
    return {}


CASES = {
    "compute_loss of a plain module": (tiny.tied, tiny.language_rows, plain_loss),
    "compute_loss of a language model": (tiny.llama, tiny.language_rows, plain_loss),
    "compute_loss of GPT-2": (lambda: tiny.gpt2(dropout=0.0, loss_type=None), tiny.language_rows, plain_loss),
    "compute_loss of BERT": (lambda: tiny.bert(dropout=0.0), tiny.classification_rows, plain_loss),
    "compute_loss with popped labels": (tiny.tied, tiny.language_rows, popped_labels),
    "compute_loss_func of a plain module": (tiny.tied, tiny.language_rows, deaf_function),
    "compute_loss_func of BERT": (lambda: tiny.bert(dropout=0.0), tiny.classification_rows, deaf_function),
    "forward with **kwargs": (tiny.deaf, tiny.language_rows, nothing),
    "own loss of a plain module": (tiny.tied, tiny.language_rows, nothing),
    "own loss of a regression": (tiny.regression, tiny.regression_rows, nothing),
    "own loss of a language model": (tiny.llama, tiny.language_rows, nothing),
    "own loss of BERT": (lambda: tiny.bert(dropout=0.0), tiny.classification_rows, nothing),
    "own loss of T5": (lambda: tiny.t5(dropout=0.0), tiny.translation_rows, nothing),
}


def first_gradient(library: str, build, data, options, batch: int, accumulation: int):
    """The gradient of the first update, as one vector, and the loss that was logged for it."""

    def script(api):
        kept = []

        def keep(self, args, state, control, model=None, **kwargs):
            kept.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).double())

        callback = type("Keep", (api.TrainerCallback,), {"on_pre_optimizer_step": keep})()
        trainer = dict(callbacks=[callback], **options(api))
        sizes = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
        built = api.fit(build(), data, trainer=trainer, max_steps=1, max_grad_norm=0.0, **sizes)
        return kept[0], built.state.log_history[0]["loss"]

    return run_one(script, library).result


@pytest.mark.parametrize("case", CASES)
def test_gradient_does_not_depend_on_the_cut(case: str) -> None:
    """16 x 1, 4 x 4 and 1 x 16 rows give one gradient and one loss, although the rows have unequal numbers of labels;
    uncut, it is that of transformers.
    """
    pytest.importorskip("transformers")
    build, rows, options = CASES[case]
    whole, whole_loss = first_gradient("ostinato", build, rows(16), options, 16, 1)
    for batch, accumulation in CUTS[1:]:
        cut, loss = first_gradient("ostinato", build, rows(16), options, batch, accumulation)
        assert float((cut - whole).norm() / whole.norm()) < 1e-6
        assert loss == pytest.approx(whole_loss, rel=1e-6)
    theirs, their_loss = first_gradient("transformers", build, rows(16), options, 16, 1)
    assert_same(theirs, whole, "gradient")
    assert whole_loss == their_loss


@pytest.mark.parametrize("case", ["compute_loss of a language model", "compute_loss_func of a plain module"])
def test_rows_without_labels_weigh_nothing(case: str) -> None:
    """A micro-batch whose labels are all -100 has a mean of 0 / 0; it must not spoil the update."""
    pytest.importorskip("transformers")
    build, rows, options = CASES[case]
    data = rows(16)
    for index in (2, 7):
        data[index] = {**data[index], "labels": [-100] * len(data[index]["labels"])}
    whole, whole_loss = first_gradient("ostinato", build, data, options, 16, 1)
    cut, loss = first_gradient("ostinato", build, data, options, 1, 16)
    assert torch.isfinite(cut).all()
    assert float((cut - whole).norm() / whole.norm()) < 1e-6
    assert loss == pytest.approx(whole_loss, rel=1e-6)


# --------------------------------------------------------------------------------------------------------------- NaN


# Steps that are skipped do not move the schedule; with a constant rate the runs can be compared.
PLAIN = {"train_sampling_strategy": "sequential", "per_device_train_batch_size": 4, "lr_scheduler_type": "constant"}


def spoilt(rows: list[dict], *indices: int) -> list[dict]:
    rows = copy.deepcopy(rows)
    for index in indices:
        rows[index]["x"][0] = math.nan
    return rows


def fit_spoilt(data, **arguments):
    return run_one(lambda api: api.fit(tiny.regression(), data, num_train_epochs=1, **PLAIN, **arguments), "ostinato")


@pytest.mark.parametrize("optimizer", ["sgd", "adamw_torch"])
def test_update_with_nan_is_skipped(optimizer: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows 20 to 23 are the sixth step: the run ends with the weights of a run without these rows."""
    rows = tiny.regression_rows(48)
    ours = fit_spoilt(spoilt(rows, 21), optim=optimizer)
    said = capsys.readouterr().err
    without = fit_spoilt(rows[:20] + rows[24:], optim=optimizer)
    assert_same(without.weights, ours.weights, "weights")
    losses = ours.logged("loss")
    assert math.isnan(losses[5])
    assert 0.0 not in losses
    assert losses[:5] + losses[6:] == without.logged("loss")
    assert "step 6" in said
    assert "20, 21, 22, 23" in said
    assert ours.state["global_step"] == 12


def test_infinite_loss_is_skipped_too() -> None:
    rows = tiny.regression_rows(48)
    data = copy.deepcopy(rows)
    data[21]["labels"] = math.inf
    ours = fit_spoilt(data)
    assert_same(fit_spoilt(rows[:20] + rows[24:]).weights, ours.weights, "weights")


def test_accumulated_update_with_nan_is_skipped_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Two micro-batches to the update: the finite one goes down with the other, and both are named."""
    rows = tiny.regression_rows(48)
    ours = fit_spoilt(spoilt(rows, 21), gradient_accumulation_steps=2)
    said = capsys.readouterr().err
    without = fit_spoilt(rows[:16] + rows[24:], gradient_accumulation_steps=2)
    assert_same(without.weights, ours.weights, "weights")
    assert "step 3" in said
    assert "16, 17, 18, 19, 20, 21, 22, 23" in said


def test_log_window_with_nan_says_so() -> None:
    """The mean over four steps, one of which was NaN, is not a number either; the final mean leaves it out."""
    ours = fit_spoilt(spoilt(tiny.regression_rows(48), 21), logging_steps=4)
    losses = ours.logged("loss")
    assert [math.isnan(loss) for loss in losses] == [False, True, False]
    assert math.isfinite(ours.output.training_loss)
    assert ours.output.training_loss > 0


@pytest.mark.parametrize("patience", [1, 3])
def test_patience(patience: int) -> None:
    """From row 20 on everything is NaN: the run stops with an error after so many steps, the weights intact."""
    rows = tiny.regression_rows(48)
    kept = {}

    def script(api):
        arguments = dict(num_train_epochs=1, nonfinite_patience=patience, **PLAIN)
        data = spoilt(rows, *range(20, 48))
        trainer = api.trainer(tiny.regression(), api.args(**arguments), train_dataset=data)
        with pytest.raises(ostinato.OstinatoError, match="step 6") as caught:
            trainer.train()
        kept["weights"] = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        kept["step"] = trainer.state.global_step
        return caught.value

    error = run_one(script, "ostinato").result
    assert isinstance(error, ArithmeticError)
    assert f"step {5 + patience}" in str(error)
    assert kept["step"] == 5 + patience - 1
    without = fit_spoilt(rows[:20])
    assert_same(without.weights, kept["weights"], "weights")


def test_patience_counts_only_in_a_row() -> None:
    """Every other step is NaN: never two in a row, so a patience of two is never used up."""
    rows = tiny.regression_rows(48)
    ours = fit_spoilt(spoilt(rows, *range(4, 48, 8)), nonfinite_patience=2)
    assert ours.state["global_step"] == 12
    assert sum(map(math.isnan, ours.logged("loss"))) == 6


def test_transformers_hides_nan() -> None:
    """The control experiment: transformers logs 0.0 from there on, trains to the end, and every weight is NaN."""
    pytest.importorskip("transformers")
    data = spoilt(tiny.regression_rows(48), 21)

    def script(api):
        trainer = api.fit(tiny.regression(), data, num_train_epochs=1, **PLAIN)
        return all(torch.isnan(weight).all() for weight in trainer.model.state_dict().values())

    theirs = run_one(script, "transformers")
    assert theirs.logged("loss")[5:] == [0.0] * 7
    assert theirs.result is True


def test_evaluating_before_training_changes_nothing(ours) -> None:
    def weights(looks: bool):
        ours.set_seed(42)
        rows = tiny.regression_rows()
        trainer = ours.trainer(tiny.regression(dropout=0.3), ours.args(max_steps=6), train_dataset=rows)
        if looks:
            trainer.evaluate(rows)
            trainer.predict(rows)
        trainer.train()
        return [parameter.detach().clone() for parameter in trainer.model.parameters()]

    for untouched, looked_at in zip(weights(False), weights(True), strict=True):
        assert torch.equal(untouched, looked_at)
