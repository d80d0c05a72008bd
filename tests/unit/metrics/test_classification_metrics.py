"""Classes against scikit-learn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.core.errors import MetricError
from ostinato.core.notices import forget_notices
from ostinato.metrics import metric

sk: Any = pytest.importorskip("sklearn.metrics")


def draws(number: int = 10):
    """Labels and predictions of every kind: few or many rows, rare classes, classes never seen."""
    for seed in range(number):
        rng = np.random.default_rng(seed)
        classes, rows = int(rng.integers(2, 6)), int(rng.integers(1, 40))
        weights = rng.dirichlet(np.full(classes, 0.7))
        yield rng.choice(classes, size=rows, p=weights), rng.choice(classes, size=rows, p=weights[::-1]), classes


@pytest.mark.parametrize("name", ["f1", "precision", "recall"])
@pytest.mark.parametrize("average", ["macro", "micro", "weighted", "binary"])
def test_averages(name: str, average: str) -> None:
    reference = getattr(sk, f"{name}_score")
    for truth, guess, _ in draws():
        if average == "binary":
            truth, guess = truth % 2, guess % 2
        expected = reference(truth, guess, average=average, zero_division=0)
        assert metric(name, average=average)((guess, truth))[name] == pytest.approx(expected)
        assert metric(f"{name}_{average}")((guess, truth)) == {f"{name}_{average}": pytest.approx(expected)}


def test_from_counts_alone() -> None:
    for truth, guess, _ in draws():
        pair = (guess, truth)
        assert metric("accuracy")(pair)["accuracy"] == pytest.approx(sk.accuracy_score(truth, guess))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = sk.balanced_accuracy_score(truth, guess), sk.matthews_corrcoef(truth, guess)
        assert metric("balanced_accuracy")(pair)["balanced_accuracy"] == pytest.approx(expected[0])
        assert metric("mcc")(pair)["mcc"] == pytest.approx(expected[1])


def test_logits_are_argmaxed_and_classes_never_seen_do_not_count() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(40, 7))
    logits[:, 5] = -9
    truth = rng.integers(0, 5, size=40)
    expected = sk.f1_score(truth, logits.argmax(1), average="macro", zero_division=0)
    assert metric("f1", average="macro")((logits, truth))["f1"] == pytest.approx(expected)
    half = torch.from_numpy(logits).to(torch.bfloat16)
    assert metric("accuracy")((half, torch.from_numpy(truth)))["accuracy"] == (
        (half.float().argmax(1).numpy() == truth).mean()
    )


def test_positive_class() -> None:
    truth, guess = np.array([0, 0, 1, 1, 0]), np.array([0, 1, 1, 0, 0])
    for positive in (0, 1):
        expected = sk.f1_score(truth, guess, pos_label=positive)
        assert metric("f1", positive=positive)((guess, truth))["f1"] == pytest.approx(expected)
    assert metric("f1")(([0, 0], [0, 0]))["f1"] == 0.0  # no positive anywhere
    with pytest.raises(MetricError, match="positive=2"):
        metric("f1", positive=2)((guess, truth))


def test_default_average_is_noted_once(capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    truth, guess = np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2])
    for _ in range(2):
        assert metric("f1")((guess, truth))["f1"] == pytest.approx(sk.f1_score(truth, guess, average="macro"))
    assert capsys.readouterr().err.count("average='macro'") == 1
    assert metric("f1")((guess % 2, truth % 2))["f1"] == pytest.approx(sk.f1_score(truth % 2, guess % 2))
    assert not capsys.readouterr().err


def test_binary_with_more_classes() -> None:
    with pytest.raises(MetricError, match="binary") as caught:
        metric("f1", average="binary")((np.zeros((2, 3)), [0, 1]))
    assert "macro" in caught.value.fix
    with pytest.raises(MetricError, match="average='makro'"):
        metric("f1", average="makro")


def test_shapes_of_labels() -> None:
    rng = np.random.default_rng(0)
    logits, truth = rng.normal(size=(4, 6, 3)), rng.integers(0, 3, size=(4, 6))
    expected = sk.f1_score(truth.reshape(-1), logits.argmax(-1).reshape(-1), average="macro")
    assert metric("f1_macro")((logits, truth))["f1_macro"] == pytest.approx(expected)
    column = truth[:, :1]  # labels kept as columns of one
    assert metric("accuracy")((logits[:, 0], column)) == metric("accuracy")((logits[:, 0], column[:, 0]))
    assert metric("accuracy")((np.array([1.0, 0.0]), np.array([1.0, 1.0]))) == {"accuracy": 0.5}  # whole floats
    assert metric("accuracy")(([True, False], [True, True])) == {"accuracy": 0.5}


# ------------------------------------------------------------------------------------------------------------ roc auc


def test_roc_auc() -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        truth = np.concatenate([[0, 1], rng.integers(0, 2, size=rng.integers(0, 50))])
        scores = np.round(rng.normal(size=len(truth)), int(rng.integers(0, 3))).astype(np.float32)  # with ties
        expected = pytest.approx(sk.roc_auc_score(truth, scores))
        logits = np.stack([-scores / 2, scores / 2], axis=1)
        for given in (scores, scores[:, None], logits, torch.from_numpy(logits)):
            assert metric("roc_auc")((given, truth)) == {"roc_auc": expected}


@pytest.mark.parametrize("average", ["macro", "weighted"])
def test_roc_auc_of_several_classes(average: str) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        logits = rng.normal(size=(40, 4)).astype(np.float32)
        truth = np.concatenate([np.arange(4), rng.integers(0, 4, size=36)])
        chances = torch.from_numpy(logits).double().softmax(1).numpy()
        expected = sk.roc_auc_score(truth, chances, multi_class="ovr", average=average)
        assert metric("auroc", average=average)((logits, truth))["auroc"] == pytest.approx(expected)


@pytest.mark.parametrize(("truth", "kind"), [([1, 1], "positive"), ([0, 0], "negative")])
def test_roc_auc_of_one_class(truth: list[int], kind: str) -> None:
    with pytest.raises(MetricError, match="roc_auc is not defined") as caught:
        metric("roc_auc")(([0.1, 0.2], truth))
    assert f"all 2 labels are {kind}" in caught.value.why
    with pytest.raises(MetricError, match="of class 2"):
        metric("roc_auc")((np.eye(3), [0, 1, 0]))


def test_roc_auc_refuses_what_has_no_order() -> None:
    with pytest.raises(MetricError, match="NaN"):
        metric("roc_auc")(([0.1, float("nan")], [0, 1]))
    with pytest.raises(MetricError, match="label 2 is not among 2 classes"):
        metric("roc_auc")(([0.1, 0.2], [0, 2]))
    with pytest.raises(MetricError, match="do not fit"):
        metric("roc_auc")((np.ones((2, 3, 4)), [0, 1]))


# --------------------------------------------------------------------------------------------------------- multilabel


def label_draws(number: int = 6):
    for seed in range(number):
        rng = np.random.default_rng(seed)
        shape = int(rng.integers(1, 20)), int(rng.integers(2, 6))
        yield (rng.random(shape) < rng.random()).astype(int), rng.normal(size=shape)


@pytest.mark.parametrize("name", ["f1", "precision", "recall"])
@pytest.mark.parametrize("average", ["macro", "micro", "weighted", "samples"])
def test_multilabel_averages(name: str, average: str) -> None:
    for truth, logits in label_draws():
        expected = getattr(sk, f"{name}_score")(truth, logits > 0, average=average, zero_division=0)
        asked = f"multilabel_{name}"
        found = metric(asked, average=average)((logits, truth))
        assert found == {asked: pytest.approx(expected)}
        assert metric(asked, average=average)((logits > 0, truth.astype(np.float32))) == found


def test_multilabel_rows_and_single_labels() -> None:
    for truth, logits in label_draws():
        chances = 1 / (1 + np.exp(-logits))
        expected = pytest.approx(sk.accuracy_score(truth, logits > 0))
        assert metric("multilabel_accuracy")((logits, truth))["multilabel_accuracy"] == expected
        assert metric("subset_accuracy", threshold=0.5)((chances, truth)) == {"subset_accuracy": expected}
        assert metric("hamming")((logits, truth))["hamming"] == pytest.approx(sk.hamming_loss(truth, logits > 0))


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_multilabel_roc_auc(average: str) -> None:
    for truth, logits in label_draws():
        truth, logits = (
            np.vstack([truth, 0 * truth[:1], 0 * truth[:1] + 1]),
            np.vstack([logits, logits[:1], logits[:1]]),
        )
        expected = sk.roc_auc_score(truth, logits.astype(np.float32), average=average)
        found = metric("multilabel_roc_auc", average=average)((logits, truth))
        assert found["multilabel_roc_auc"] == pytest.approx(expected)
    with pytest.raises(MetricError, match="of label 0 is not defined"):
        metric("multilabel_roc_auc")(([[0.1, 0.2]], [[1, 0]]))


def test_multilabel_ignores_single_labels() -> None:
    truth, logits = (
        np.array([[1, -100, 0], [-100, -100, -100], [0, 1, 1]]),
        np.array([[1.0, 9, 9], [9, 9, 9], [-1, 1, -1]]),
    )
    assert metric("multilabel_accuracy")((logits, truth)) == {"multilabel_accuracy": 0.0}
    assert metric("hamming_loss")((logits, truth))["hamming_loss"] == pytest.approx(2 / 5)
    assert metric("multilabel_recall")((logits, truth))["multilabel_recall"] == pytest.approx(2 / 3)


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "predictions", "labels", "text"),
    [
        ("accuracy", np.zeros((4, 1)), [0, 1, 0, 1], "one column"),
        ("accuracy", np.zeros((4, 3)), [0, 1], r"predictions \(4, 3\) do not fit labels \(2,\)"),
        ("accuracy", np.zeros((1, 3)), [3], "label 3 is not among the model's 3 classes"),
        ("accuracy", np.zeros((1, 3)), [-1], "label -1 is not a class"),
        ("accuracy", [-100], [1], "predicted class -100 is not a class"),
        ("accuracy", np.zeros((1, 3)), [0.5], "label 0.5 is not a class"),
        ("accuracy", [[1, 2], [3]], [1, 2], "cannot read the predictions"),
        ("accuracy", ["a"], [1], "cannot read the predictions: a list of str"),
        ("accuracy", [1], None, "cannot read the labels"),
        ("f1", [0.3], [1], "prediction 0.3 is not a class id"),
        ("f1", np.full((1, 2), 0.5), [[1, 0]], "is not a class id"),
        ("multilabel_f1", np.zeros((2, 3)), [0, 1], r"labels \(2,\)"),
        ("multilabel_f1", np.zeros((1, 2)), [[0, 2]], "label 2 is neither 0 nor 1"),
    ],
)
def test_wrong_input_is_an_error(name: str, predictions: Any, labels: Any, text: str) -> None:
    with pytest.raises(MetricError, match=text) as caught:
        metric(name).update(predictions, labels)
    assert caught.value.why and caught.value.fix
    assert all(len(line) < 140 for line in str(caught.value).splitlines())


def test_multilabel_is_suggested() -> None:
    with pytest.raises(MetricError) as caught:
        metric("f1")((np.full((1, 2), 0.5), [[1, 0]]))
    assert "multilabel_" in caught.value.fix


def test_nan_logits_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    for logits in (np.array([[0.0, np.nan], [1.0, 0.0]]), torch.tensor([[0.0, float("nan")], [1.0, 0.0]])):
        forget_notices()
        metric("accuracy")((logits, [1, 0]))
        assert "1 predictions of a batch are NaN" in capsys.readouterr().err
