"""Perplexity and token accuracy against torch, and the place they look at."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import ostinato.metrics.language as language
from ostinato.core.errors import MetricError
from ostinato.metrics import aligned, labels_are_shifted, metric


def batch(seed: int = 0, rows: int = 5, tokens: int = 9, vocabulary: int = 13) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, tokens, vocabulary, generator=generator) * 2
    labels = torch.randint(0, vocabulary, (rows, tokens), generator=generator)
    labels[torch.rand(rows, tokens, generator=generator) < 0.3] = -100
    return logits, labels


@pytest.mark.parametrize("shift", [True, False])
def test_perplexity_is_exp_of_the_loss(shift: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        logits, labels = batch(seed)
        scored = (logits[:, :-1], labels[:, 1:]) if shift else (logits, labels)
        expected = math.exp(cross_entropy(scored[0].reshape(-1, 13), scored[1].reshape(-1)).item())
        for given in (logits, logits.numpy(), logits.double()):
            assert metric("perplexity", shift=shift)((given, labels))["perplexity"] == pytest.approx(
                expected, rel=1e-5
            )
        monkeypatch.setattr(language, "CHUNK_BYTES", 200)  # three tokens at a time
        assert metric("ppl", shift=shift)((logits, labels))["ppl"] == pytest.approx(expected, rel=1e-5)


def test_perplexity_from_sums() -> None:
    logits, labels = batch()
    target = metric("perplexity")
    for row in range(len(labels)):
        shifted = labels[row, 1:]
        loss = cross_entropy(logits[row, :-1], shifted, reduction="sum")
        target.add_loss(loss, tokens=(shifted != -100).sum())  # type: ignore[attr-defined]
    assert target.compute()["perplexity"] == pytest.approx(metric("perplexity")((logits, labels))["perplexity"])
    target.add_loss(loss_sum=0.0, tokens=0)  # type: ignore[attr-defined]
    target.compute()


def test_perplexity_has_no_upper_end() -> None:
    target = metric("perplexity")
    target.add_loss(loss_sum=1e6, tokens=1)  # type: ignore[attr-defined]
    assert target.compute() == {"perplexity": math.inf}
    target.add_loss(loss_sum=math.nan, tokens=1)  # type: ignore[attr-defined]
    assert math.isnan(target.compute()["perplexity"])


def test_gradients_and_half_precision_are_fine() -> None:
    logits, labels = batch()
    expected = metric("perplexity")((logits, labels))["perplexity"]
    assert metric("perplexity")((logits.clone().requires_grad_(), labels))["perplexity"] == expected
    assert metric("perplexity")((logits.to(torch.bfloat16), labels))["perplexity"] == pytest.approx(expected, rel=0.02)


def test_read_only_logits() -> None:
    """A memory map that nobody may write to is read without a warning."""
    logits, labels = batch()
    frozen = logits.numpy().copy()
    frozen.setflags(write=False)
    for name in ("perplexity", "token_accuracy"):
        assert metric(name)((frozen, labels)) == metric(name)((logits, labels))


# ------------------------------------------------------------------------------------------------------ token accuracy


def test_perfect_causal_model_scores_one() -> None:
    labels = np.array([[3, 1, 4, 1, 5], [9, 2, 6, -100, -100]])
    logits = np.zeros((2, 5, 10))
    for row in range(2):
        for place in range(4):
            logits[row, place, max(labels[row, place + 1], 0)] = 50.0
    for given in (logits, logits.argmax(-1)):
        assert metric("token_accuracy")((given, labels)) == {"token_accuracy": 1.0}
    assert metric("perplexity")((logits, labels))["perplexity"] == pytest.approx(1.0)
    guess, truth = aligned(logits, labels)
    assert np.array_equal(guess.argmax(-1), truth)
    assert np.array_equal(truth, [1, 4, 1, 5, 2, 6])


def test_labels_compared_in_place() -> None:
    labels = np.random.default_rng(0).integers(0, 50, size=(4, 30))
    assert metric("token_accuracy", shift=False)((labels, labels)) == {"token_accuracy": 1.0}
    assert metric("token_accuracy")((labels, labels))["token_accuracy"] < 0.2


@pytest.mark.parametrize(
    ("labels", "answer"),
    [
        ([[1, 2, 3, 4], [5, 6, 7, 8]], False),
        ([[-100, 2, 3, -100], [-100, 6, 7, 8]], False),  # a masked prompt, and padding
        ([[2, 3, 4, -100], [6, 7, 8, -100]], True),
        ([[2, 3, 4, 9], [6, 7, 8, 9]], True),  # the next token of a longer text
        ([[-100, 3, 4, -100], [-100, -100, -100, -100]], True),
        ([[2, 2, 4, 4], [6, 6, 8, 8]], None),
        ([[0, 0, 0, 0], [1, 1, 1, 1]], None),
        ([[-100] * 4] * 2, None),
        ([[1], [0]], None),
        ([1, 0], None),
    ],
)
def test_labels_shifted_already(labels: list, answer: bool | None) -> None:
    inputs = [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert labels_are_shifted(inputs, labels) is answer
    assert labels_are_shifted(torch.tensor(inputs), torch.tensor(labels)) is answer


def test_repeated_tokens_are_not_called_shifted() -> None:
    assert labels_are_shifted(np.ones((2, 8), dtype=int), np.ones((2, 8), dtype=int)) is False


@pytest.mark.parametrize("shift", [True, False])
def test_aligned_pairs(shift: bool) -> None:
    logits, labels = batch()
    guess, truth = aligned(logits, labels, shift=shift)
    assert isinstance(guess, torch.Tensor)
    assert guess.shape == (len(truth), 13)
    expected = metric("token_accuracy", shift=shift)((logits, labels))["token_accuracy"]
    assert (guess.argmax(-1).numpy() == truth).mean() == pytest.approx(expected)
    ids, same_truth = aligned(logits.argmax(-1).numpy(), labels, shift=shift)
    assert np.array_equal(ids, guess.argmax(-1).numpy()) and np.array_equal(truth, same_truth)


@pytest.mark.parametrize("name", ["perplexity", "token_accuracy"])
def test_wrong_input_is_an_error(name: str) -> None:
    logits, labels = batch()
    for bad in (labels[:, 1:], labels[:, :, None], labels[0]):
        with pytest.raises(MetricError, match="do not fit") as caught:
            metric(name)((logits, bad))
        assert "do not shift" in caught.value.fix
    with pytest.raises(MetricError, match="do not fit"):
        metric(name)((logits[0], labels))


def test_labels_beyond_the_vocabulary() -> None:
    logits, labels = batch()
    labels[0, 1] = 13
    with pytest.raises(MetricError, match="label 13 is not among 13 tokens") as caught:
        metric("perplexity")((logits, labels))
    assert "resize_token_embeddings" in caught.value.fix
    with pytest.raises(MetricError, match="label -100"):
        metric("perplexity", ignore_index=None)(batch())
