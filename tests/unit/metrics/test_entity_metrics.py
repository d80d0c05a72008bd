"""Entities against seqeval."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.core.errors import MetricError
from ostinato.core.notices import forget_notices
from ostinato.metrics import metric
from ostinato.metrics.entities import Entity, lenient_entities, strict_entities

seqeval: Any = pytest.importorskip("seqeval.metrics")
labeling: Any = pytest.importorskip("seqeval.metrics.sequence_labeling")
schemes: Any = pytest.importorskip("seqeval.scheme")

Tags = list[list[str]]
PREFIXES = {"IOB2": "BI", "IOE2": "IE", "IOBES": "BIES", "BILOU": "BILU"}


def drawn(rng: np.random.Generator, prefixes: str, rows: int, length: int = 8) -> Tags:
    tags = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in ("PER", "LOC", "ORG"))]
    return [rng.choice(tags, size=rng.integers(1, length)).tolist() for _ in range(rows)]


def expected(truth: Tags, guess: Tags, **options: Any) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = {
            name: getattr(seqeval, f"{name}_score")(truth, guess, zero_division=0, **options)
            for name in ("precision", "recall", "f1")
        }
        return {**scores, "accuracy": seqeval.accuracy_score(truth, guess)}


def alike(rng: np.random.Generator, truth: Tags, prefixes: str) -> Tags:
    """Predictions that are right more often than not."""
    noise = [drawn(rng, prefixes, 1, len(row) + 40)[0] for row in truth]
    return [
        [tag if rng.random() < 0.7 else other[k % len(other)] for k, tag in enumerate(row)]
        for row, other in zip(truth, noise, strict=True)
    ]


@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
def test_lenient_scores(average: str) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        truth = drawn(rng, "BIES", 6)
        guess = alike(rng, truth, "BIES")
        found = metric("seqeval", average=average)((guess, truth))
        assert found == pytest.approx(expected(truth, guess, average=average))


@pytest.mark.parametrize("scheme", PREFIXES)
def test_strict_scores(scheme: str) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        truth = drawn(rng, PREFIXES[scheme], 6)
        guess = alike(rng, truth, PREFIXES[scheme])
        found = metric("seqeval", scheme=scheme)((guess, truth))
        assert found == pytest.approx(expected(truth, guess, mode="strict", scheme=getattr(schemes, scheme)))


def test_entities_of_random_tags() -> None:
    rng = np.random.default_rng(0)
    for row in drawn(rng, "BIES", 500):
        assert [tuple(one) for one in lenient_entities(row)] == labeling.get_entities(row)
    for scheme, prefixes in PREFIXES.items():
        for row in drawn(rng, prefixes, 300):
            reference = schemes.Entities([row], getattr(schemes, scheme)).entities[0]
            found = [tuple(one) for one in strict_entities(row, scheme)]
            assert found == [(one.tag, one.start, one.end - 1) for one in reference], (scheme, row)


def test_each_scheme_reads_leniently() -> None:
    """Two neighbours of one type, then another type."""
    wanted = [Entity("PER", 0, 1), Entity("PER", 2, 2), Entity("LOC", 4, 5)]
    written = {
        "IOB1": ["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-LOC"],
        "IOB2": ["B-PER", "I-PER", "B-PER", "O", "B-LOC", "I-LOC"],
        "IOE1": ["I-PER", "E-PER", "I-PER", "O", "I-LOC", "I-LOC"],
        "IOE2": ["I-PER", "E-PER", "E-PER", "O", "I-LOC", "E-LOC"],
        "IOBES": ["B-PER", "E-PER", "S-PER", "O", "B-LOC", "E-LOC"],
        "BILOU": ["B-PER", "L-PER", "U-PER", "O", "B-LOC", "L-LOC"],
    }
    for scheme, tags in written.items():
        assert lenient_entities(tags) == wanted, scheme
        if scheme in PREFIXES:
            assert strict_entities(tags, scheme) == wanted, scheme


NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def test_class_ids_and_logits() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(8, 12, 5)).astype(np.float32)
    labels = rng.choice([0, 1, 2, 3, 4, -100], size=(8, 12))
    truth = [[NAMES[label] for label in row if label != -100] for row in labels]
    guess = [
        [NAMES[one] for one, label in zip(row, gold, strict=True) if label != -100]
        for row, gold in zip(logits.argmax(-1), labels, strict=True)
    ]
    wanted = pytest.approx(expected(truth, guess))
    for names in (NAMES, dict(enumerate(NAMES)), {str(k): name for k, name in enumerate(NAMES)}):
        for given in (logits, logits.argmax(-1), torch.from_numpy(logits)):
            assert metric("seqeval", label_names=names)((given, labels)) == wanted
    rows = [row[row != -100] for row in labels], [row[labels[k] != -100] for k, row in enumerate(logits.argmax(-1))]
    assert metric("ner", label_names=NAMES)((rows[1], rows[0])) == wanted  # a list of rows of different length


def test_by_type() -> None:
    truth, guess = [["B-PER", "O", "B-LOC"]], [["B-PER", "B-ORG", "O"]]
    found = metric("seqeval", by_type=True)((guess, truth))
    assert found["PER_f1"] == 1.0
    assert found["LOC_recall"] == found["ORG_precision"] == 0.0
    assert [name for name in found if "_" in name][:3] == ["LOC_precision", "LOC_recall", "LOC_f1"]


def test_types_merge_in_any_order() -> None:
    first, second = metric("seqeval", by_type=True), metric("seqeval", by_type=True)
    first.update([["B-PER", "O"]], [["B-PER", "B-LÖC"]])
    second.update([["B-LÖC", "B-ORG"]], [["B-LÖC", "B-PER"]])
    whole = metric("seqeval", by_type=True)
    whole.merge(second.state())
    whole.merge(first.state())
    first.merge(second.state())
    assert first.compute() == whole.compute()
    assert first.compute()["LÖC_recall"] == 0.5


def test_no_entities_at_all() -> None:
    assert metric("seqeval")(([["O"]], [["O"]])) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "accuracy": 1.0}


def test_tags_without_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    forget_notices()
    assert lenient_entities(["B-PER", "[PAD]"]) == [Entity("PER", 0, 0)]
    assert "'[PAD]'" in capsys.readouterr().err


def test_wrong_input_is_an_error() -> None:
    with pytest.raises(MetricError, match="no tags") as caught:
        metric("seqeval")(([[0]], np.array([[1]])))
    assert "id2label" in caught.value.fix
    with pytest.raises(MetricError, match="names an entity"):
        metric("seqeval", label_names=["LABEL_0", "LABEL_1"])
    with pytest.raises(MetricError, match="different numbers"):
        metric("seqeval")(([["O"]], [["O", "O"]]))
    with pytest.raises(MetricError, match="scheme='IOB1'"):
        metric("seqeval", scheme="IOB1")
    with pytest.raises(MetricError, match="'S-PER' is not of the scheme IOB2"):
        metric("seqeval", scheme="IOB2")(([["S-PER"]], [["S-PER"]]))
    with pytest.raises(MetricError, match="class 7 has no tag"):
        metric("seqeval", label_names=NAMES)((np.array([[7]]), np.array([[1]])))
