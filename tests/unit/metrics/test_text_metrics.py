"""Texts against sacrebleu, rouge-score and jiwer."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
import torch

from ostinato.core.errors import MetricError
from ostinato.metrics import metric
from ostinato.metrics.rouge import compute_lcs_rows

WORDS = re.findall(r"\S+", "the cat cats sat sitting on a Mats mat, dog's running. 12 The don't über (x) a-b c. .d !")


def written(chance: random.Random, least: int = 0, *, lines: bool = True) -> str:
    gaps = [" ", " ", "  ", *(["\n"] if lines else [])]
    return "".join(chance.choice(WORDS) + chance.choice(gaps) for _ in range(chance.randint(least, 12)))


def corpora(number: int, *, references: bool = False, least: int = 0, lines: bool = True):
    for seed in range(number):
        chance = random.Random(seed)
        rows, several = chance.randint(1, 4), chance.randint(1, 3) if references else 1
        guesses = [written(chance, lines=lines) for _ in range(rows)]
        truths = [[written(chance, least, lines=lines) for _ in range(several)] for _ in range(rows)]
        yield guesses, truths


# ---------------------------------------------------------------------------------------------------------- bleu, chrf


def test_bleu() -> None:
    reference = pytest.importorskip("sacrebleu").metrics.BLEU
    for options in ({}, {"lowercase": True}, {"tokenize": "char"}):
        theirs, ours = reference(**options), metric("bleu", **options)
        for guesses, truths in corpora(40, references=True):
            expected = theirs.corpus_score(guesses, [list(column) for column in zip(*truths, strict=True)]).score
            assert ours((guesses, truths))["bleu"] == pytest.approx(expected)


def test_metrics_without_their_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("ostinato.metrics.optional_libraries.import_module", missing)
    with pytest.raises(MetricError, match="bleu needs sacrebleu") as caught:
        metric("bleu")
    assert "pip install sacrebleu" in caught.value.fix and "chrf" in caught.value.fix
    with pytest.raises(MetricError, match="stemmer=True needs nltk"):
        metric("rouge", stemmer=True)
    for name in ("wer", "cer"):
        with pytest.raises(MetricError, match=f"{name} needs jiwer") as caught:
            metric(name)
        assert "pip install jiwer" in caught.value.fix and "ostinato[metrics]" in caught.value.fix


@pytest.mark.parametrize("word_order", [0, 2])
@pytest.mark.parametrize("lowercase", [False, True])
def test_chrf(word_order: int, lowercase: bool) -> None:
    reference = pytest.importorskip("sacrebleu").metrics.CHRF(word_order=word_order, lowercase=lowercase)
    ours = metric("chrf", word_order=word_order, lowercase=lowercase)
    for guesses, truths in corpora(40, references=True):
        expected = reference.corpus_score(guesses, [list(column) for column in zip(*truths, strict=True)]).score
        assert ours((guesses, truths))["chrf"] == pytest.approx(expected)


def test_chrf_plus_plus() -> None:
    pair = (["the cat, sat"], ["the cat sat."])
    assert metric("chrF++")(pair) == {"chrf_plus_plus": metric("chrf", word_order=2)(pair)["chrf"]}


# --------------------------------------------------------------------------------------------------------------- rouge


@pytest.mark.parametrize("stemmer", [False, True])
def test_rouge(stemmer: bool) -> None:
    rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
    kinds = ["rouge1", "rouge2", "rouge4", "rougeL", "rougeLsum"]
    theirs = rouge_scorer.RougeScorer(kinds, use_stemmer=stemmer)
    ours = metric("rouge", kinds=kinds, stemmer=stemmer)
    for guesses, truths in corpora(40, references=True):
        rows = [theirs.score_multi(answers, guess) for guess, answers in zip(guesses, truths, strict=True)]
        expected = {kind: np.mean([row[kind].fmeasure for row in rows]) for kind in kinds}
        assert ours((guesses, truths)) == pytest.approx(expected)


def test_rouge_by_kind() -> None:
    pair = (["the cat sat\non the mat"], ["the cat\nsat on a mat"])
    whole = metric("rouge")(pair)
    assert tuple(whole) == ("rouge1", "rouge2", "rougeL", "rougeLsum")
    for kind in whole:
        assert metric(kind)(pair) == {kind: whole[kind]}
    with pytest.raises(MetricError, match="'rougeX'"):
        metric("rouge", kinds=["rougeX"])


def test_longest_common_subsequence_by_table() -> None:
    chance = random.Random(0)
    for _ in range(100):
        one, other = ("".join(chance.choices("abc", k=chance.randint(1, 90))) for _ in range(2))
        table = np.zeros((len(one) + 1, len(other) + 1), dtype=int)
        for i, j in np.ndindex(len(one), len(other)):
            better = max(table[i, j + 1], table[i + 1, j])
            table[i + 1, j + 1] = table[i, j] + 1 if one[i] == other[j] else better
        for i, row in enumerate(compute_lcs_rows(one, other)):
            lengths = [j - (row & ((1 << j) - 1)).bit_count() for j in range(len(other) + 1)]
            assert lengths == table[i + 1].tolist()


# --------------------------------------------------------------------------------------------------------- error rates


def test_error_rates() -> None:
    jiwer = pytest.importorskip("jiwer")
    for guesses, truths in corpora(80, least=1, lines=False):
        answers = [row[0] for row in truths]
        assert metric("wer")((guesses, answers))["wer"] == pytest.approx(jiwer.wer(answers, guesses))
        assert metric("cer")((guesses, answers))["cer"] == pytest.approx(jiwer.cer(answers, guesses))


def test_normalised_error_rate() -> None:
    assert metric("wer", normalize=str.lower)((["The Cat"], ["the cat"])) == {"wer": 0.0}
    assert metric("wer")((["The Cat"], ["the cat"])) == {"wer": 1.0}
    assert metric("wer")((["a b c"], ["a"])) == {"wer": 2.0}


def test_empty_references() -> None:
    assert metric("wer")((["a", "b c"], ["", "b c"])) == {"wer": 0.5}  # counted over all rows
    with pytest.raises(MetricError, match="wer is not defined"):
        metric("wer")((["a"], [""]))


# --------------------------------------------------------------------------------------------------------- exact match


def test_exact_match() -> None:
    pair = (["Yes.", "no", " maybe "], [["yes"], ["No", "no"], ["maybe"]])
    assert metric("exact_match")(pair)["exact_match"] == pytest.approx(2 / 3)
    assert metric("em", ignore_case=True, ignore_punctuation=True)(pair) == {"em": 1.0}


# ----------------------------------------------------------------------------------------------------------- token ids


class Tokenizer:
    """Knows ten words; 0 is special."""

    words = ["<pad>", "the", "cat", "sat", "on", "a", "mat", "and", "saw", "dogs"]

    def batch_decode(self, rows: list[list[int]], *, skip_special_tokens: bool) -> list[str]:
        assert all(isinstance(token, int) and token >= 0 for row in rows for token in row)
        return [" ".join(self.words[token] for token in row if token or not skip_special_tokens) for row in rows]


@pytest.mark.parametrize("name", ["rouge", "wer", "cer", "chrf", "exact_match"])
def test_generated_ids_are_decoded(name: str) -> None:
    guess = np.array([[1, 2, 3, 0], [1, 9, 3, -100]])
    truth = np.array([[1, 2, 3, -100, -100], [1, 2, 3, 4, -100]])
    expected = metric(name)((["the cat sat", "the dogs sat"], ["the cat sat", "the cat sat on"]))
    for given in (
        (guess, truth),
        (torch.from_numpy(guess), torch.from_numpy(truth)),
        (guess.tolist(), truth.tolist()),
    ):
        assert metric(name, tokenizer=Tokenizer())(given) == expected
    rows = [row for row in guess], [row for row in truth]  # noqa: C416
    assert metric(name, tokenizer=Tokenizer())(rows) == pytest.approx(expected)

    def decode(lists: list[list[int]]) -> list[str]:
        return Tokenizer().batch_decode(lists, skip_special_tokens=True)

    assert metric(name, tokenizer=decode)((guess, truth)) == expected


def test_wrong_input_is_an_error() -> None:
    with pytest.raises(MetricError, match="token ids, and no tokenizer") as caught:
        metric("rouge").update(np.array([[1]]), np.array([[1]]))
    assert "tokenizer=tokenizer" in caught.value.fix
    with pytest.raises(MetricError, match="cannot read the predictions as text") as caught:
        metric("rouge", tokenizer=Tokenizer()).update(np.zeros((1, 3, 4)), np.array([[1, 2, 3]]))
    assert "predict_with_generate" in caught.value.fix
    with pytest.raises(MetricError, match="one string"):
        metric("wer").update("a", ["a"])
    with pytest.raises(MetricError, match="1 predictions, 2 references"):
        metric("chrf").update(["a"], ["a", "b"])


def test_the_others_need_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: Any) -> Any:
        raise AssertionError(name)

    monkeypatch.setattr("ostinato.metrics.optional_libraries.import_module", missing)
    for name in ("rouge", "chrf", "exact_match", "squad"):
        metric(name)((["the cat"], ["the cats"]))
