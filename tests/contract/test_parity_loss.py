"""Losses that users bring along: overridden `compute_loss`, `compute_loss_func`, scales."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support import tiny
from tests.support.parity import check_parity, run_both, run_one
from tests.support.records import assert_same_run

pytest.importorskip("transformers")

SIZES = {"num_train_epochs": 2, "per_device_train_batch_size": 4}


def fit(api, trainer_class, *, model=None, rows=None, **arguments):
    trainer = {"cls": trainer_class, "eval_dataset": tiny.regression_rows(10, seed=2)}
    return api.fit(
        model or tiny.regression(), rows or tiny.regression_rows(), trainer=trainer, **{**SIZES, **arguments}
    )


def test_override_with_the_full_signature() -> None:
    def script(api):
        class Huber(api.Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                outputs = model(x=inputs["x"])
                loss = nn.functional.huber_loss(outputs["logits"], inputs["labels"])
                return (loss, outputs) if return_outputs else loss

        trainer = fit(api, Huber, eval_strategy="epoch")
        prediction = trainer.predict(tiny.regression_rows(10, seed=3))
        return prediction.predictions, prediction.label_ids, prediction.metrics

    check_parity(script)


def test_override_with_keywords() -> None:
    def script(api):
        class Scaled(api.Trainer):
            def compute_loss(self, model, inputs, *args, **kwargs):
                result = super().compute_loss(model, inputs, *args, **kwargs)
                return (2 * result[0], *result[1:]) if isinstance(result, tuple) else 2 * result

        return fit(api, Scaled, eval_strategy="epoch").evaluate()

    check_parity(script)


def test_override_that_asks_super_for_outputs() -> None:
    def script(api):
        class Penalised(api.Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
                loss = loss + 0.01 * outputs["logits"].square().mean()
                return (loss, outputs) if return_outputs else loss

        return fit(api, Penalised, eval_strategy="epoch").evaluate()

    check_parity(script)


def test_override_that_removes_the_labels() -> None:
    """The common recipe of weighted classification: `labels = inputs.pop("labels")`."""

    def script(api):
        class Weighted(api.Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                labels = inputs.pop("labels")
                outputs = model(**inputs)
                weight = torch.tensor([1.0, 2.0, 3.0], device=labels.device)
                loss = nn.functional.cross_entropy(outputs.logits, labels, weight=weight)
                return (loss, outputs) if return_outputs else loss

        trainer = {"cls": Weighted, "eval_dataset": tiny.classification_rows(10, seed=2)}
        sizes = dict(eval_strategy="epoch", **SIZES)
        built = api.fit(tiny.bert(dropout=0.0), tiny.classification_rows(), trainer=trainer, **sizes)
        prediction = built.predict(tiny.classification_rows(10, seed=3))
        return prediction.predictions, prediction.label_ids, prediction.metrics

    check_parity(script)


def test_override_with_the_old_signature() -> None:
    """transformers 5 calls `compute_loss(..., num_items_in_batch=...)`, so the signature of 4.45 and before fails.
    Ours still runs it, and trains as if the parameter were there and unused.
    """

    def old(api):
        class Old(api.Trainer):
            def compute_loss(self, model, inputs, return_outputs=False):
                outputs = model(**inputs)
                return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

        fit(api, Old, eval_strategy="epoch")

    def new(api):
        class New(api.Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                outputs = model(**inputs)
                return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

        fit(api, New, eval_strategy="epoch")

    with pytest.raises(TypeError, match="num_items_in_batch"):
        run_one(old, "transformers")
    assert_same_run(run_one(new, "transformers"), run_one(old, "ostinato"))


@pytest.mark.parametrize("accumulation", [1, 2])
def test_override_that_uses_the_number_of_items(accumulation: int) -> None:
    def script(api):
        class PerToken(api.Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                outputs = model(input_ids=inputs["input_ids"])
                logits, labels = outputs["logits"].flatten(0, 1), inputs["labels"].flatten()
                if num_items_in_batch is None:
                    loss = nn.functional.cross_entropy(logits, labels)
                else:
                    loss = nn.functional.cross_entropy(logits, labels, reduction="sum") / num_items_in_batch
                return (loss, outputs) if return_outputs else loss

        trainer = {"cls": PerToken}
        sizes = dict(gradient_accumulation_steps=accumulation, **SIZES)
        api.fit(tiny.deaf(), tiny.language_rows(), trainer=trainer, **sizes)

    check_parity(script)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_loss_function_that_uses_the_number_of_items(accumulation: int) -> None:
    def script(api):
        def loss(outputs, labels, num_items_in_batch=None):
            logits, labels = outputs["logits"].flatten(0, 1), labels.flatten()
            if num_items_in_batch is None:
                return nn.functional.cross_entropy(logits, labels)
            return nn.functional.cross_entropy(logits, labels, reduction="sum") / num_items_in_batch

        trainer = {"compute_loss_func": loss, "eval_dataset": tiny.language_rows(10, seed=2)}
        sizes = {
            "gradient_accumulation_steps": accumulation,
            "eval_strategy": "epoch",
            "per_device_eval_batch_size": 10,
            **SIZES,
        }
        return api.fit(tiny.tied(), tiny.language_rows(), trainer=trainer, **sizes).evaluate()

    check_parity(script)


def test_loss_function_is_called_alike() -> None:
    """With the outputs and the labels by position and the count by name, in training and in evaluation."""
    calls: dict[str, list] = {}

    def script(api):
        def loss(*args, **kwargs):
            calls.setdefault(api.name, []).append(
                (len(args), sorted(kwargs), [type(v).__name__ for v in kwargs.values()])
            )
            outputs, labels = args
            return (outputs["logits"] - labels).square().mean()

        trainer = {"compute_loss_func": loss, "eval_dataset": tiny.regression_rows(8)}
        api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, eval_strategy="epoch", **SIZES)

    check_parity(script)
    assert calls["transformers"] == calls["ostinato"]


def test_number_of_items_is_the_same() -> None:
    """What `training_step` and `compute_loss` are told about the size of the update."""

    def script(api):
        seen = []

        class Spy(api.Trainer):
            def training_step(self, model, inputs, num_items_in_batch=None):
                seen.append(("step", value(num_items_in_batch)))
                return super().training_step(model, inputs, num_items_in_batch)

            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                seen.append(("loss", value(num_items_in_batch)))
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

        api.fit(tiny.llama(), tiny.language_rows(22), trainer={"cls": Spy}, gradient_accumulation_steps=3, **SIZES)
        return seen

    check_parity(script)


def value(number):
    """The count, whether it comes as an integer or, on the first accumulated step, as a float."""
    return int(number) if isinstance(number, torch.Tensor) else number


def test_loss_that_is_a_tensor_subclass_of_one_element() -> None:
    """A loss of shape (1,) counts as a scalar; transformers fails when it adds it up."""

    def script(api):
        class Boxed(api.Trainer):
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                outputs = model(**inputs)
                loss = outputs["loss"].reshape(1)
                return (loss, outputs) if return_outputs else loss

        try:
            fit(api, Boxed, num_train_epochs=1)
        except (RuntimeError, ValueError) as error:
            return type(error).__name__
        return "trained"

    theirs, ours = run_both(script)
    assert theirs.result == "RuntimeError"
    assert ours.result == "trained"


def test_model_without_a_loss_is_an_error(api) -> None:
    class NoLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x, labels=None):
            return {"logits": self.layer(x)}

    with pytest.raises(ValueError, match="loss"):
        api.fit(NoLoss(), tiny.regression_rows(), num_train_epochs=1)


def test_loss_that_states_to_be_scaled() -> None:
    """`loss_is_scaled_for_ga = True`: an override that divides by the number of micro-batches itself is left alone."""

    def script(api):
        class Own(api.Trainer):
            loss_is_scaled_for_ga = True

            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                outputs = model(**inputs)
                loss = outputs["loss"] / self.current_gradient_accumulation_steps
                return (loss, outputs) if return_outputs else loss

        api.fit(
            tiny.regression(), tiny.regression_rows(24), trainer={"cls": Own}, gradient_accumulation_steps=3, **SIZES
        )

    check_parity(script)
