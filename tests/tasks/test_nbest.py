"""The best answers of all windows, against every pair of tokens looked at one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.tasks.nbest import (
    FoundAnswer,
    Window,
    add_probabilities,
    choose_answer,
    find_likely_spans,
    rank_candidates,
    write_answers,
)
from tests.support.question_reference import best_by_hand, silence_by_hand

CONTEXT = "anna lives in ulm and works for a company in the south"
PLACES = [(0, 4), (5, 10), (11, 13), (14, 17), (18, 21), (22, 27), (28, 31), (32, 33), (34, 41), (42, 44), (45, 48)]


@st.composite
def a_window(draw: Any, ties: bool) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Logits of a few tokens; some tokens are no part of the context, and later ones may have no place at all."""
    places = draw(st.lists(st.sampled_from([None, *PLACES]), min_size=1, max_size=9))
    places = sorted((place for place in places if place), key=lambda place: place[0])
    where = draw(st.lists(st.booleans(), min_size=len(places), max_size=len(places) + 4).filter(lambda one: True))
    tokens: list[Any] = []
    remaining = iter(places)
    for is_inside in where:
        tokens.append(next(remaining, None) if is_inside else None)
    tokens = tokens or [None]
    length = len(tokens) + draw(st.integers(0, 3))
    value = st.integers(-2, 2) if ties else st.floats(-5, 5, width=32)
    logits = [np.array(draw(st.lists(value, min_size=length, max_size=length)), dtype=np.float32) for _ in range(2)]
    return logits[0], logits[1], tokens


@pytest.mark.parametrize("ties", [True, False])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_best_answers_equal_brute_force(ties: bool, data: Any) -> None:
    windows = data.draw(st.lists(a_window(ties), min_size=1, max_size=3))
    n_best, longest = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    expected = best_by_hand(CONTEXT, windows, n_best, longest)
    spans = [
        find_likely_spans(Window(number, tokens, 0), starts, ends, n_best, longest)
        for number, (starts, ends, tokens) in enumerate(windows)
    ]
    assert [(one["text"], one["score"]) for one in rank_candidates(CONTEXT, spans, n_best)] == expected

    rest = [data.draw(st.integers(0, len(starts) - 1)) for starts, _, _ in windows]
    silence, threshold = silence_by_hand(windows, rest), data.draw(st.sampled_from([-1.0, 0.0, 1.5]))
    example, empty = {"id": "7", "context": CONTEXT}, {"text": "", "score": silence}
    found = choose_answer(example, spans, empty, n_best=n_best, threshold=threshold)
    speaks = bool(expected) and silence - expected[0][1] <= threshold
    assert found.text == (expected[0][0] if speaks else "")
    assert found.null_odds == silence - (expected[0][1] if expected else 0.0)
    assert sum(one["probability"] for one in found.n_best) == pytest.approx(1)
    assert [one for one in found.n_best if not one["text"]], "silence is always among the best, for its probability"
    said = choose_answer(example, spans, None, n_best=n_best, threshold=threshold)
    assert said.text == (expected[0][0] if expected else "")
    assert said.null_odds is None


def test_probabilities_do_not_overflow() -> None:
    listed = add_probabilities([{"text": "a", "score": 1000.0}, {"text": "b", "score": 998.0}])
    assert [one["probability"] for one in listed] == pytest.approx([0.8808, 0.1192], abs=1e-4)
    assert add_probabilities([]) == []


def test_files_of_answers(tmp_path: Path) -> None:
    best = [{"text": "Cádiz", "probability": 1.0}]
    write_answers([FoundAnswer(7, "Cádiz", best, 0.5), FoundAnswer(8, "", best, 2.0)], tmp_path, "eval")
    assert json.loads((tmp_path / "eval_predictions.json").read_text(encoding="utf-8")) == {"7": "Cádiz", "8": ""}
    assert json.loads((tmp_path / "eval_null_odds.json").read_text()) == {"7": 0.5, "8": 2.0}
    assert json.loads((tmp_path / "eval_nbest_predictions.json").read_text(encoding="utf-8"))["7"] == best
    write_answers([FoundAnswer(7, "Ulm")], tmp_path, "predict")
    assert sorted(path.name for path in tmp_path.glob("predict*")) == ["predict_predictions.json"]
