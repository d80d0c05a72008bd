"""The evaluation loop alone, with a stand-in for the trainer; what counts as logits."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from ostinato import Trainer, TrainingArguments
from ostinato.core.state import TrainerControl, TrainerState
from ostinato.evaluation.eval_loop import evaluation_loop
from ostinato.evaluation.eval_metrics import average_losses
from ostinato.evaluation.eval_plan import EvalPlan
from ostinato.evaluation.step import get_ignored_outputs, logits_of
from ostinato.evaluation.storage.store import RowStore
from ostinato.strategies.single import SingleDevice
from tests.support import tiny


class Fake:
    """All that the evaluation asks of a trainer: logits are the inputs, the loss is their mean."""

    def __init__(self, compute_metrics=None, preprocess=None) -> None:
        self.args, self.state, self.control = None, TrainerState(), TrainerControl()
        self.strategy, self.label_names = SingleDevice(torch.device("cpu")), ["labels"]
        self.compute_metrics, self.preprocess_logits_for_metrics = compute_metrics, preprocess
        self.events = 0
        self.callback_handler = SimpleNamespace(on_prediction_step=self._told)

    def _told(self, args, state, control, **details):
        self.events += 1
        return control

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        loss = inputs["x"].float().mean()
        return (loss, None, None) if prediction_loss_only else (loss, inputs["x"], inputs["labels"])

    def _prepare_input(self, data):
        return data


def plan_of(**changes) -> EvalPlan:
    defaults = dict(
        loss_only=False,
        keep_inputs=False,
        keep_losses=False,
        metric_per_batch=False,
        join_batches=True,
        main_input="x",
        prefix="eval",
        ignore_keys=None,
        weigh=lambda inputs: float((inputs["labels"] != -100).sum()),
        real_rows=lambda number: None,
        preparation_time=None,
    )
    return EvalPlan(**{**defaults, **changes})


def batches() -> list[dict[str, torch.Tensor]]:
    """Two rows of three and one row of five; the labels are ragged too, and some are missing."""
    return [
        {"x": torch.tensor([[1.0, 2, 3], [4, 5, 6]]), "labels": torch.tensor([[1, -100, -100], [1, -100, -100]])},
        {"x": torch.tensor([[7.0, 8, 9, 10, 11]]), "labels": torch.tensor([[1, 1, 1, 1, 1]])},
    ]


MODEL = nn.Identity()


# ------------------------------------------------------------------------------------------------------ mean loss


def test_loss_is_weighted_by_what_it_averages() -> None:
    output = evaluation_loop(Fake(), MODEL, batches(), plan_of())
    assert output.metrics == {"eval_loss": pytest.approx((2 * 3.5 + 5 * 9.0) / 7)}


def mean_of(*parts: tuple[list[float], list[float]]) -> float | None:
    losses = np.concatenate([np.array(losses, dtype=np.float32) for losses, _ in parts])
    return average_losses(losses, np.concatenate([np.array(weights, dtype=np.float64) for _, weights in parts]))


def test_mean_loss() -> None:
    assert average_losses(None, None) is None
    assert mean_of(([1.0, 1.0], [1.0, 1.0]), ([4.0], [1.0])) == 2.0
    assert mean_of(([1.0, 1.0], [0.5, 0.5]), ([4.0], [3.0])) == 3.25


def test_batch_without_labels_does_not_spoil_the_mean() -> None:
    assert mean_of(([float("nan")], [0.0]), ([4.0, 4.0], [2.0, 2.0])) == 4.0


def test_mean_of_equal_weights_is_that_of_numpy() -> None:
    losses = np.random.default_rng(1).random(37).astype(np.float32)
    assert average_losses(losses, np.ones(37)) == losses.mean().item()


# ----------------------------------------------------------------------------------------------------------- joining


def test_ragged_batches_are_joined() -> None:
    output = evaluation_loop(Fake(), MODEL, batches(), plan_of())
    assert output.predictions.tolist() == [[1, 2, 3, -100, -100], [4, 5, 6, -100, -100], [7, 8, 9, 10, 11]]
    assert output.label_ids.shape == (3, 5)
    assert isinstance(output.predictions, np.ndarray)
    assert output.num_samples == 3


def test_batches_may_stay_apart() -> None:
    got = []
    fake = Fake(compute_metrics=lambda prediction: got.append(prediction) or {})
    evaluation_loop(fake, MODEL, batches(), plan_of(join_batches=False))
    assert [part.shape for part in got[0].predictions] == [(2, 3), (1, 5)]


def test_loss_only() -> None:
    output = evaluation_loop(Fake(), MODEL, batches(), plan_of(loss_only=True))
    assert output.predictions is None
    assert output.label_ids is None
    assert output.num_samples == 3


def test_nothing_to_evaluate() -> None:
    output = evaluation_loop(Fake(), MODEL, [], plan_of())
    assert (output.predictions, output.metrics, output.num_samples) == (None, {}, 0)


def test_every_batch_is_told() -> None:
    fake = Fake()
    evaluation_loop(fake, MODEL, batches(), plan_of())
    assert fake.events == 2


def test_preprocessed_before_anything_is_kept() -> None:
    fake = Fake(preprocess=lambda logits, labels: logits.argmax(-1))
    output = evaluation_loop(fake, MODEL, batches(), plan_of())
    assert output.predictions.tolist() == [2, 2, 4]


# ----------------------------------------------------------------------------------------------------------- metrics


def test_metrics_are_named_and_plain() -> None:
    result = {"accuracy": np.float32(0.5), "eval_f1": torch.tensor(0.25), "per_class": [np.float64(1.0)], "n": 3}
    fake = Fake(compute_metrics=lambda prediction: result)
    metrics = evaluation_loop(fake, MODEL, batches(), plan_of(preparation_time=0.1)).metrics
    assert metrics["eval_accuracy"] == 0.5
    assert type(metrics["eval_accuracy"]) is float
    assert metrics["eval_f1"] == 0.25
    assert type(metrics["eval_f1"]) is float
    assert type(metrics["eval_per_class"][0]) is float
    assert metrics["eval_model_preparation_time"] == 0.1
    assert set(metrics) == {
        "eval_accuracy",
        "eval_f1",
        "eval_per_class",
        "eval_n",
        "eval_loss",
        "eval_model_preparation_time",
    }


def test_order_of_metrics_as_transformers(tmp_path) -> None:
    pytest.importorskip("transformers")
    from tests.support.parity import run_both

    def script(api):
        def metrics(prediction):
            return {"zebra": 1.0, "eval_mid": 2.0, "apple": np.float64(3.0)}

        trainer = api.trainer(tiny.regression(), api.args(), compute_metrics=metrics)
        found = trainer.evaluate(tiny.regression_rows(4))
        predicted = trainer.predict(tiny.regression_rows(4), metric_key_prefix="test").metrics
        return [[(name, type(value).__name__) for name, value in one.items()] for one in (found, predicted)]

    theirs, ours = run_both(script)
    assert ours.result == theirs.result


def test_metric_function_gets_what_was_asked_for() -> None:
    got = []
    fake = Fake(compute_metrics=lambda prediction: got.append(prediction) or {})
    evaluation_loop(fake, MODEL, batches(), plan_of(keep_inputs=True, keep_losses=True))
    assert got[0].inputs.shape == (3, 5)
    assert got[0].losses.tolist() == [3.5, 3.5, 9.0]
    evaluation_loop(fake, MODEL, batches(), plan_of())
    assert got[1].inputs is None
    assert got[1].losses is None


def test_metric_per_batch() -> None:
    calls = []

    def compute(prediction, compute_result):
        calls.append((type(prediction.predictions).__name__, len(prediction.predictions), compute_result))
        return {"rows": sum(rows for _, rows, _ in calls)}

    output = evaluation_loop(Fake(compute_metrics=compute), MODEL, batches(), plan_of(metric_per_batch=True))
    assert calls == [("Tensor", 2, False), ("Tensor", 1, True)]
    assert output.metrics["eval_rows"] == 3
    assert output.predictions.shape == output.label_ids.shape == (3, 5)


def test_metric_per_batch_keeps_no_more_than_is_wanted() -> None:
    """An evaluation keeps losses alone, a prediction what it returns; the batches are nobody's afterwards."""
    kept: list[set[str]] = []

    class Watched(RowStore):
        def add(self, parts, rows) -> None:
            kept.append({name for name, part in parts.items() if part is not None})
            super().add(parts, rows)

    fake = Fake(compute_metrics=lambda prediction, compute_result: {})
    for wanted in (False, True):
        plan = plan_of(metric_per_batch=True, keep_predictions=wanted, keep_inputs=True, store=Watched)
        evaluation_loop(fake, MODEL, batches(), plan)
    losses = {"losses", "weights"}
    assert kept == [losses, losses, losses | {"logits", "labels"}, losses | {"logits", "labels"}]


def test_metric_per_batch_of_one_prediction_per_row() -> None:
    """The stand-alone evaluation of a single batch is first and last at once."""
    calls = []
    fake = Fake(compute_metrics=lambda prediction, compute_result: calls.append(compute_result) or {"a": 1})
    evaluation_loop(fake, MODEL, batches()[:1], plan_of(metric_per_batch=True))
    assert calls == [True]


# ------------------------------------------------------------------------------------------------------------ logits


LOSS, A, B = torch.tensor(1.0), torch.ones(2, 3), torch.ones(2, 4)


@pytest.mark.parametrize(
    ("outputs", "has_loss", "expected"),
    [
        ({"loss": LOSS, "logits": A}, True, (A,)),
        ({"loss": LOSS, "logits": A, "hidden": B}, True, (A,)),
        ({"logits": A}, False, (A,)),
        (OrderedDict(loss=LOSS, a=A, b=B), True, (A, B)),
        ((LOSS, A, B), True, (A, B)),
        ((A, B), False, (A, B)),
        ((A, B), True, (A, B)),  # the loss came from elsewhere: nothing in front to leave out
        (A, True, (A,)),
        (A, False, (A,)),
    ],
)
def test_logits(outputs, has_loss: bool, expected: tuple) -> None:
    found = logits_of(outputs, ["hidden"], has_loss=has_loss)
    assert len(found) == len(expected)
    assert all(one is other for one, other in zip(found, expected, strict=True))


def test_ignored_outputs() -> None:
    model = SimpleNamespace(config=SimpleNamespace(keys_to_ignore_at_inference=["past"]))
    assert get_ignored_outputs(model) == ["past"]  # type: ignore[arg-type]
    assert get_ignored_outputs(tiny.regression()) == []


def step(inputs, *, label_names=("labels",), loss_only=False, output="dict"):
    args = TrainingArguments("unused", use_cpu=True, report_to="none", label_names=list(label_names))
    trainer = Trainer(tiny.regression(output=output), args)
    return trainer.prediction_step(trainer.model, inputs, loss_only, [])


@pytest.mark.parametrize("output", ["dict", "tuple"])
def test_one_step(output: str) -> None:
    inputs = {"x": torch.ones(3, 4), "labels": torch.zeros(3)}
    loss, logits, labels = step(inputs, output=output)
    assert loss.dim() == 0
    assert logits.shape == (3,)
    assert torch.equal(labels, inputs["labels"])
    assert not loss.requires_grad
    assert not logits.requires_grad
    assert step(inputs, loss_only=True, output=output)[1:] == (None, None)


@pytest.mark.parametrize("output", ["dict", "tuple"])
def test_one_step_without_labels(output: str) -> None:
    loss, logits, labels = step({"x": torch.ones(3, 4)}, output=output)
    assert loss is None
    assert labels is None
    assert logits.shape == (3,)


def test_one_step_with_several_labels() -> None:
    inputs = {"x": torch.ones(3, 4), "labels": torch.zeros(3)}
    assert step({**inputs}, label_names=("labels", "ends"))[2] is None  # one of them is missing
