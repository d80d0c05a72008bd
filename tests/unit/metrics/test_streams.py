"""What an evaluation gives to a streaming metric, and what it makes of its result."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ostinato.core.errors import MetricError
from ostinato.core.outputs import EvalPrediction
from ostinato.evaluation.metric_spec import parse_metrics
from ostinato.metrics import metric, metrics
from ostinato.metrics.adapters import Stream

torchmetrics = pytest.importorskip("torchmetrics")
from torchmetrics import MetricCollection  # noqa: E402
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score  # noqa: E402
from torchmetrics.regression import MeanSquaredError  # noqa: E402

DRAW = torch.Generator().manual_seed(0)


class Pairs:
    """Remembers all it is given."""

    def __init__(self) -> None:
        self.given, self.resets = [], 0

    def reset(self) -> None:
        self.given, self.resets = [], self.resets + 1

    def update(self, preds, target) -> None:
        self.given.append((preds, target))

    def compute(self):
        return torch.tensor(float(len(self.given)))


class WholePrediction(Pairs):
    def update(self, prediction) -> None:  # type: ignore[override]
        self.given.append(prediction)


def causal(rows: int = 4) -> EvalPrediction:
    logits, labels = torch.randn(rows, 5, 7, generator=DRAW), torch.randint(0, 7, (rows, 5), generator=DRAW)
    labels[0, 3:] = -100
    return EvalPrediction(logits, labels, output_names=("logits",), shifts_labels=True)  # type: ignore[arg-type]


def test_a_pair_is_aligned() -> None:
    stream, prediction = Stream.wrap(Pairs()), causal()
    stream.open().add(prediction)
    (preds, target), expected = stream.metric.given[0], prediction.aligned()
    assert torch.equal(preds, expected[0])
    assert torch.equal(target, expected[1])
    assert preds.shape == (4 * 4 - 2, 7)


def test_one_parameter_is_the_prediction() -> None:
    stream, prediction = Stream.wrap(WholePrediction()), causal()
    stream.open().add(prediction)
    (given,) = stream.metric.given
    assert torch.equal(given.logits, prediction.logits)
    assert given.shifts_labels
    assert given.outputs["logits"].shape == (4, 5, 7)


def test_names_of_results() -> None:
    assert Stream.wrap(Pairs()).name == "pairs"
    assert Stream.wrap(MulticlassAccuracy(3)).name == "multiclass_accuracy"
    assert Stream.wrap(Pairs(), "calls").compute() == {"calls": torch.tensor(0.0)}
    per_class = MulticlassAccuracy(3, average=None)
    per_class.update(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 1]))
    assert list(Stream.wrap(per_class, "acc").compute()) == ["acc_0", "acc_1", "acc_2"]


def test_torchmetrics() -> None:
    """Accuracy and F1 over batches of a causal model, as one collection: equal to ours on everything at once."""
    collection = MetricCollection([MulticlassAccuracy(7, average="micro"), MulticlassF1Score(7, average="macro")])
    stream, batches = Stream.wrap(collection).open(), [causal(), causal(3)]
    for batch in batches:
        stream.add(batch)
    guess, truth = (torch.cat(parts) for parts in zip(*(batch.aligned() for batch in batches), strict=True))
    ours = metrics(["accuracy", "f1_macro"])((guess, truth))
    found = {name: float(value) for name, value in stream.compute().items()}
    assert found == pytest.approx(
        {"MulticlassAccuracy": ours["accuracy"], "MulticlassF1Score": ours["f1_macro"]}, rel=1e-6
    )


def test_torchmetrics_of_values() -> None:
    stream = Stream.wrap(MeanSquaredError()).open()
    stream.add(EvalPrediction(torch.tensor([[1.0], [2.0]]), torch.tensor([2.0, 4.0])))  # type: ignore[arg-type]
    assert stream.compute() == {"mean_squared_error": torch.tensor(2.5)}


def test_torchmetrics_does_not_add_up_what_all_processes_have_seen() -> None:
    asked = []

    def there_are_others() -> bool:
        asked.append(True)
        return False

    collection = MetricCollection([MeanSquaredError(distributed_available_fn=there_are_others)])
    stream = Stream.wrap(collection).open()
    stream.add(EvalPrediction(torch.tensor([1.0]), torch.tensor([2.0])))  # type: ignore[arg-type]
    stream.compute(processes=2)
    assert not asked
    stream.open().add(EvalPrediction(torch.tensor([1.0]), torch.tensor([2.0])))  # type: ignore[arg-type]
    stream.compute(processes=1)
    assert asked


@pytest.mark.parametrize("name", ["accuracy", "f1_macro", "token_accuracy", "balanced_accuracy"])
def test_ours_see_a_causal_model_shifted(name: str) -> None:
    stream, prediction = Stream.wrap(metric(name)), causal()
    opened = stream.open(shift=True)
    opened.add(prediction)
    guess, truth = prediction.aligned()
    expected = (guess.argmax(-1) == truth).float().mean().item()
    if name in ("accuracy", "token_accuracy"):
        assert opened.compute()[name] == pytest.approx(expected)
    else:
        assert opened.compute() == metric(name)((guess, truth))


def test_ours_are_copies() -> None:
    given = metric("accuracy")
    given.update([1], [1])
    before = given.state()
    opened = Stream.wrap(given).open()
    opened.add(EvalPrediction(np.array([0]), np.array([1])))
    assert opened.compute() == {"accuracy": 0.0}
    opened.close()
    assert given.state() == before


def test_open_options_are_filled_and_given_ones_stay() -> None:
    class Words:
        def batch_decode(self, rows, skip_special_tokens):
            return [" ".join(map(str, row)) for row in rows]

    both = metrics(["wer", "seqeval", ("token_accuracy", {"shift": True})])
    settled = both.settled(shift=False, tokenizer=Words(), label_names={"0": "O", "1": "B-PER"})
    wer, seqeval, tokens = settled.parts
    assert isinstance(wer.tokenizer, Words)  # type: ignore[attr-defined]
    assert seqeval.label_names == {0: "O", 1: "B-PER"}  # type: ignore[attr-defined]
    assert tokens.shift is True  # type: ignore[attr-defined]
    assert both.parts[0].tokenizer is None  # type: ignore[attr-defined]


def test_the_output_called_logits_is_read() -> None:
    logits, other = np.eye(3), np.zeros((3, 3))
    prediction = EvalPrediction((other, logits), np.arange(3), output_names=("other", "logits"))
    stream = Stream.wrap(metric("accuracy")).open()
    stream.add(prediction)
    assert stream.compute() == {"accuracy": 1.0}


# ----------------------------------------------------------------------------------------------------------- asked for


def test_valid_metric_requests() -> None:
    function = len
    found = parse_metrics(function, ["f1", ("hits", metric("accuracy")), ("mcc", {"interval": 0.9}), Pairs()])
    assert found.function is function
    assert [stream.name for stream in found.streams] == ["f1", "hits", "mcc", "pairs"]
    assert found.names is None
    assert parse_metrics("f1").names == ("f1",)
    assert parse_metrics({"f1": {"average": "macro"}, "mine": Pairs()}).streams[1].name == "mine"
    assert parse_metrics(metrics=["mcc", ("hits", metric("accuracy"))]).names == ("mcc", "hits")
    assert parse_metrics(metrics=("f1", "mcc")).names == ("f1", "mcc")
    assert parse_metrics(("f1", {"interval": 0.9})).names == ("f1", "f1_low", "f1_high")
    assert parse_metrics(["accuracy", "auto"]).auto
    assert not parse_metrics()
    assert parse_metrics(metrics=["rmse", "f1"]).directions == {"rmse": False, "f1": True}


def test_names_that_only_an_evaluation_knows() -> None:
    assert parse_metrics(metrics=[("seqeval", {"by_type": True})]).names is None
    assert parse_metrics(metrics=["squad_v2"]).names is None
    assert parse_metrics(metrics=["seqeval"]).names == ("precision", "recall", "f1", "accuracy")


class TakesThree(Pairs):
    def update(self, preds, target, indexes) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (["acuracy"], r"there is no metric 'acuracy'(?s:.*)nearest names are 'accuracy'(?s:.*)mean_iou"),
        (["f1", "f1"], "two metrics give the result 'f1'"),
        (["f1", "seqeval"], "two metrics give the result 'f1'"),
        ([3], "a int is not a metric"),
        ([len], "is not a metric"),
        (MulticlassAccuracy, "MulticlassAccuracy is a class, not a metric"),
        ([TakesThree()], "update takes preds, target, indexes"),
        ([("f1", {"averages": "macro"})], "has no option averages="),
    ],
)
def test_invalid_metric_requests(wanted, told: str) -> None:
    with pytest.raises(MetricError, match=told):
        parse_metrics(metrics=wanted)
