"""Pixels against scikit-learn; ranks by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

import ostinato.metrics.retrieval as retrieval
from ostinato.core.errors import MetricError
from ostinato.core.notices import forget_notices
from ostinato.metrics import metric

sk: Any = pytest.importorskip("sklearn.metrics")


def test_mean_iou() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        logits, labels = rng.normal(size=(3, 5, 6, 7)), rng.integers(0, 4, size=(3, 6, 7))
        labels[0, 0] = 255
        labels[1, 0] = -100
        guess = logits.argmax(1)
        there = (labels != 255) & (labels != -100)
        found = metric("mean_iou", ignore_index=255)((logits, labels))
        assert found["mean_iou"] == pytest.approx(sk.jaccard_score(labels[there], guess[there], average="macro"))
        assert found["overall_accuracy"] == pytest.approx(sk.accuracy_score(labels[there], guess[there]))
        recalls = sk.recall_score(labels[there], guess[there], average=None, labels=range(4))
        assert found["mean_accuracy"] == pytest.approx(recalls.mean())
        assert metric("miou", ignore_index=255)((guess, labels))["miou"] == found["mean_iou"]


def test_small_logits_are_scaled(capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(2, 3, 4, 4, generator=generator), torch.randint(0, 3, (2, 8, 8), generator=generator)
    scaled = interpolate(logits, size=(8, 8), mode="bilinear", align_corners=False)
    found = metric("mean_iou")((logits, labels))
    assert capsys.readouterr().err.count("(4, 4) are scaled to the labels' (8, 8)") == 1
    assert metric("mean_iou")((scaled, labels)) == found == metric("mean_iou")((logits.numpy(), labels.numpy()))


def test_pixels_that_do_not_fit() -> None:
    with pytest.raises(MetricError, match="label 255 is not among 3 classes") as caught:
        metric("mean_iou")((np.zeros((1, 3, 2, 2)), np.full((1, 2, 2), 255, dtype=np.uint8)))
    assert "ignore_index=255" in caught.value.fix
    for bad in (np.zeros((1, 3, 3), dtype=int), np.zeros((2, 3, 2, 2)), np.zeros((1, 2), dtype=int)):
        with pytest.raises(MetricError, match="do not fit labels"):
            metric("mean_iou")((bad, np.zeros((1, 2, 2), dtype=int)))


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_embeddings(similarity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    answers = rng.normal(size=(40, 5)).astype(np.float32)
    queries = answers + rng.normal(size=(40, 5)).astype(np.float32)
    scores = queries.astype(np.float64) @ answers.T
    if similarity == "cosine":
        scores /= np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(answers, axis=1)
    rank = np.array([1 + (row > row[k]).sum() for k, row in enumerate(scores)])
    expected = {"mrr": (1 / rank).mean(), **{f"recall_at_{k}": (rank <= k).mean() for k in (1, 5, 10)}}
    assert metric("retrieval", similarity=similarity)((queries, answers)) == pytest.approx(expected)
    monkeypatch.setattr(retrieval, "CHUNK_BYTES", 1000)  # a few queries at a time
    assert metric("retrieval", similarity=similarity)((queries, answers)) == pytest.approx(expected)
    pair = (torch.from_numpy(queries), torch.from_numpy(answers))
    assert metric("mrr", similarity=similarity)(pair) == {"mrr": pytest.approx(expected["mrr"])}
    assert metric("Recall@5", similarity=similarity)(pair) == {"recall_at_5": pytest.approx(expected["recall_at_5"])}
    assert tuple(metric("recall_at_k", at=[2, 4]).keys) == ("recall_at_2", "recall_at_4")


def test_scored_candidates() -> None:
    scores = np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1], [0.0, 1.0, 2.0]])
    found = metric("retrieval", at=[1, 2])((scores, np.array([2, 0, -100])))
    assert found == {"mrr": 0.75, "recall_at_1": 0.5, "recall_at_2": 1.0}


def test_collapsed_embeddings_rank_last() -> None:
    assert metric("retrieval", at=[1])((np.ones((8, 4)), np.ones((8, 4)))) == {"mrr": 0.125, "recall_at_1": 0.0}
    assert metric("mrr")((np.zeros((2, 4)), np.array([0, 1]))) == {"mrr": 0.25}


def test_interval_draws_queries_from_a_fixed_set_of_answers() -> None:
    rng = np.random.default_rng(0)
    answers = rng.normal(size=(60, 8))
    found = metric("mrr", interval=0.9, resamples=100)((answers + rng.normal(size=(60, 8)), answers))
    assert found["mrr_low"] < found["mrr"] < found["mrr_high"]


def test_wrong_input_is_an_error() -> None:
    with pytest.raises(MetricError, match="embeddings"):
        metric("retrieval").update(np.ones((2, 3)), np.ones((3, 3)))
    with pytest.raises(MetricError, match="label 3 names none of 3 candidates"):
        metric("retrieval").update(np.ones((1, 3)), np.array([3]))
    with pytest.raises(MetricError, match="NaN"):
        metric("retrieval").update(np.full((1, 3), np.nan), np.ones((1, 3)))
    with pytest.raises(MetricError, match="ranks count from 1"):
        metric("retrieval", at=[0])
    with pytest.raises(MetricError, match="similarity='l2'"):
        metric("retrieval", similarity="l2")
