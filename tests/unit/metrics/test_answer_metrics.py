"""Answers: SQuAD's rules by example, and spans by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.core.errors import MetricError
from ostinato.metrics import metric
from ostinato.metrics.qa import compute_word_f1, find_best_spans, normalize_answer


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The Eiffel Tower", "eiffel tower"),
        ("an  apple,a pear", "applea pear"),  # punctuation goes first, and leaves no space
        ("U.S.", "us"),
        ("theatre", "theatre"),
        ("  spaced\tout\n", "spaced out"),
        ("the", ""),
    ],
)
def test_normalisation(text: str, plain: str) -> None:
    assert normalize_answer(text) == plain


@pytest.mark.parametrize(
    ("guess", "truth", "f1"),
    [
        ("in Paris", "Paris", 2 / 3),
        ("Paris", "Paris", 1.0),
        ("London", "Paris", 0.0),
        ("new new york", "new york new", 1.0),
        ("new", "new new", 2 / 3),
        ("", "Paris", 0.0),
    ],
)
def test_word_f1(guess: str, truth: str, f1: float) -> None:
    assert compute_word_f1(guess, truth) == pytest.approx(f1)
    assert compute_word_f1(guess, truth, empty_is_equal=True) == pytest.approx(f1)


def test_empty_answers_agree_in_version_two_only() -> None:
    assert compute_word_f1("the", "a") == 0.0
    assert compute_word_f1("the", "a", empty_is_equal=True) == 1.0


FORMS = [
    (["a cat", "dogs"], [["cat", "the kitten"], ["two dogs"]]),
    (["a cat", "dogs"], [{"text": ["cat", "the kitten"]}, {"text": ["two dogs"]}]),
    (
        [{"id": "1", "prediction_text": "a cat"}, {"id": "2", "prediction_text": "dogs"}],
        [  # in another order
            {"id": "2", "answers": {"text": ["two dogs"], "answer_start": [0]}},
            {"id": "1", "answers": {"text": ["cat", "the kitten"], "answer_start": [0, 5]}},
        ],
    ),
    (["a cat", "dogs"], [{"answers": [{"text": "cat"}, {"text": "the kitten"}]}, {"answers": [{"text": "two dogs"}]}]),
]


@pytest.mark.parametrize(("predictions", "references"), FORMS)
def test_forms_of_input(predictions: list, references: list) -> None:
    best = pytest.approx(100 * (1 + 2 / 3) / 2)
    assert metric("squad")((predictions, references)) == {"exact_match": 50.0, "f1": best}
    found = metric("squad_v2")((predictions, references))
    assert (found["exact"], found["f1"], found["total"]) == (50.0, best, 2)
    assert found["HasAns_total"] == 2 and "NoAns_total" not in found


def test_version_two_by_kind_of_question() -> None:
    predictions = [
        {"id": "a", "prediction_text": "Paris", "no_answer_probability": 0.1},
        {"id": "b", "prediction_text": "in Rome", "no_answer_probability": 0.6},
        {"id": "c", "prediction_text": "Oslo", "no_answer_probability": 0.9},
        {"id": "d", "prediction_text": "", "no_answer_probability": 0.8},
    ]
    references = [
        {"id": "a", "answers": {"text": ["Paris"]}},
        {"id": "b", "answers": {"text": ["Rome"]}},
        {"id": "c", "answers": {"text": []}},
        {"id": "d", "answers": {"text": []}},
    ]
    found = metric("squad_v2")((predictions, references))
    assert found["exact"] == 50.0
    assert found["f1"] == pytest.approx(100 * (1 + 2 / 3 + 0 + 1) / 4)
    assert (found["HasAns_exact"], found["NoAns_exact"], found["NoAns_total"]) == (50.0, 50.0, 2)
    # answering a and b, and staying silent on c and d, is the best one could have done
    assert (found["best_exact"], found["best_exact_thresh"]) == (75.0, 0.1)
    assert (found["best_f1"], found["best_f1_thresh"]) == (pytest.approx(100 * (3 + 2 / 3) / 4), 0.6)
    strict = metric("squad_v2", no_answer_threshold=0.5)((predictions, references))
    assert (strict["exact"], strict["HasAns_exact"], strict["NoAns_exact"]) == (75.0, 50.0, 100.0)


def test_best_spans_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    starts, ends = rng.normal(size=(2, 50, 7))
    first, last = find_best_spans(starts, ends)
    for row in range(50):
        pairs = [(s, e) for s in range(7) for e in range(s, 7)]
        assert (first[row], last[row]) == max(pairs, key=lambda p: starts[row, p[0]] + ends[row, p[1]])


def test_spans() -> None:
    def pointing(places: list[int]) -> np.ndarray:
        return np.eye(10)[places] * 9

    logits = pointing([2, 4, 0]), pointing([4, 4, 0])
    found = metric("answer_span")((logits, (np.array([2, 3, 0]), np.array([4, 4, 0]))))
    assert found == {"span_exact_match": pytest.approx(2 / 3), "span_f1": pytest.approx((1 + 2 / 3 + 1) / 3)}
    # an answer outside the window is left out, as the loss leaves it out
    same = metric("answer_span")((logits, (np.array([2, 3, 10]), np.array([4, 4, 12]))))
    assert same == {"span_exact_match": 0.5, "span_f1": pytest.approx((1 + 2 / 3) / 2)}


def test_wrong_input_is_an_error() -> None:
    with pytest.raises(MetricError, match="as an answer") as caught:
        metric("squad")((np.zeros((1, 4)), [["a"]]))
    assert "answer_span" in caught.value.fix
    with pytest.raises(MetricError, match="single row"):
        metric("squad").update("cat", ["cat"])
    with pytest.raises(MetricError, match="2 predictions, 1 references"):
        metric("squad").update(["a", "b"], ["a"])
    with pytest.raises(MetricError, match="id '2'"):
        metric("squad").update([{"id": "2", "prediction_text": ""}], [{"id": "1", "answers": {"text": []}}])
    with pytest.raises(MetricError, match="int as a reference"):
        metric("squad").update(["a"], [3])
    with pytest.raises(MetricError, match="pair of start and end logits"):
        metric("answer_span").update(np.zeros((1, 4)), (np.zeros(1), np.zeros(1)))
    with pytest.raises(MetricError, match="two tables"):
        metric("answer_span").update((np.zeros((1, 4)), np.zeros((1, 5))), (np.zeros(1), np.zeros(1)))
