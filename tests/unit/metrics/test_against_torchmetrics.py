"""What no other reference library computes, against torchmetrics on random inputs, batch by batch."""

from __future__ import annotations

import random

import pytest
import torch

from ostinato.metrics import metric

pytest.importorskip("torchmetrics")
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.retrieval import RetrievalMRR, RetrievalRecall
from torchmetrics.text import Perplexity, SQuAD

WORDS = ["the", "Cat", "sat", "on", "a", "mat.", "an", "old", "dog!", "ran"]


@pytest.mark.parametrize("seed", range(5))
def test_squad(seed: int) -> None:
    draw = random.Random(seed)

    def text() -> str:
        """With a word that is no article: of empty answers, version 1.1 and torchmetrics think differently."""
        return " ".join([*draw.choices(WORDS, k=draw.randint(0, 4)), draw.choice(WORDS[-2:])])

    ours, theirs = metric("squad"), SQuAD()
    for batch in range(4):
        ids = [f"{batch}.{row}" for row in range(draw.randint(1, 6))]
        guesses = [{"id": one, "prediction_text": text()} for one in ids]
        answers = [[text() for _ in range(draw.randint(1, 3))] for _ in ids]
        truths = [
            {"id": one, "answers": {"text": texts, "answer_start": [0] * len(texts)}}
            for one, texts in zip(ids, answers, strict=True)
        ]
        ours.update(guesses, truths)
        theirs.update(guesses, truths)
    found = theirs.compute()
    assert ours.compute() == pytest.approx(
        {"exact_match": float(found["exact_match"]), "f1": float(found["f1"])}, rel=1e-5
    )


@pytest.mark.parametrize("seed", range(3))
def test_language_models(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = metric("perplexity", shift=False), Perplexity(ignore_index=-100)
    hits, their_hits = metric("token_accuracy", shift=False), MulticlassAccuracy(9, average="micro", ignore_index=-100)
    for width in (5, 3, 8):
        logits = torch.randn(4, width, 9, generator=generator)
        labels = torch.randint(0, 9, (4, width), generator=generator)
        labels[torch.rand(4, width, generator=generator) < 0.3] = -100
        for one in (ours, theirs, hits):
            one.update(logits, labels)
        their_hits.update(logits.flatten(0, 1), labels.flatten())
    assert ours.compute()["perplexity"] == pytest.approx(float(theirs.compute()), rel=1e-5)
    assert hits.compute()["token_accuracy"] == pytest.approx(float(their_hits.compute()))


@pytest.mark.parametrize("k", [1, 3, 5])
def test_ranks(k: int) -> None:
    """Each row is a query; among its candidates, one is right."""
    generator = torch.Generator().manual_seed(k)
    ours, mrr, recall = metric("retrieval", at=[k]), RetrievalMRR(), RetrievalRecall(top_k=k)
    for batch in range(3):
        scores, right = torch.rand(6, 8, generator=generator), torch.randint(0, 8, (6,), generator=generator)
        ours.update(scores, right)
        target = torch.nn.functional.one_hot(right, 8).bool()
        query = torch.arange(6)[:, None].expand(6, 8) + 6 * batch
        for one in (mrr, recall):
            one.update(scores.flatten(), target.flatten(), indexes=query.flatten())
    found = {"mrr": float(mrr.compute()), f"recall_at_{k}": float(recall.compute())}
    assert ours.compute() == pytest.approx(found, rel=1e-5)
