"""Windows over a context, and the tokens of an answer in them, held against every token looked at one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.tasks.context_windows import Windows, WindowSettings, cut_windows
from ostinato.tasks.questions import Answers
from ostinato.tasks.tokenizers import BERT, XLNET, train_tokenizer

CONTEXT = "Anna lives in Ulm and works for Bergbahn."


@pytest.fixture(scope="module", params=[BERT, XLNET], ids=["padded on the right", "padded on the left"])
def tokenizer(request: Any) -> Any:
    texts = [CONTEXT, "Where does Anna live?", "Whom does Anna work for?"] * 3
    return train_tokenizer(texts, 120, request.param)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_tokens_of_an_answer(data: Any) -> None:
    widths = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=8))
    gaps = data.draw(st.lists(st.integers(0, 1), min_size=len(widths), max_size=len(widths)))
    places, at = [], data.draw(st.integers(0, 6))  # windows begin anywhere in a context
    for width, gap in zip(widths, gaps, strict=True):
        places.append((at + gap, at + gap + width))
        at += gap + width
    first, last = places[0][0], places[-1][1]
    begin, length = data.draw(st.integers(0, last + 2)), data.draw(st.integers(1, 6))
    before = data.draw(st.integers(1, 3))  # special tokens and the question
    inside = np.array([False] * before + [True] * len(places) + [False])
    windows = Windows({}, [0], [[(0, 0)] * before + places + [(0, 0)]], [inside], [0])
    starts, ends = windows.locate_answers([Answers(["x" * length], [begin])])
    if begin < first or begin + length > last:
        assert (starts, ends) == ([0], [0])
        return
    # The last token that begins no later, and the first that ends no sooner.
    expected = max(n for n, place in enumerate(places) if place[0] <= begin)
    assert starts == [before + expected]
    assert ends == [before + min(n for n, place in enumerate(places) if place[1] >= begin + length)]


def test_windows_overlap_and_hold_the_answers(tokenizer: Any) -> None:
    context = f"{CONTEXT} {CONTEXT.replace('Ulm', 'Oslo')} {CONTEXT.replace('Ulm', 'Kiel')} {CONTEXT} {CONTEXT}"
    answer = Answers(["Oslo"], [context.index("Oslo")])
    windows = cut_windows(tokenizer, [" Where does Anna live?"], [context], WindowSettings(40, 8, pad=True), str)
    assert len(windows.row_numbers) > 1 and {len(ids) for ids in windows.columns["input_ids"]} == {40}
    found = 0
    for number, (start, end) in enumerate(zip(*windows.locate_answers([answer]), strict=True)):
        if start == windows.cls_index[number]:
            assert windows.columns["input_ids"][number][start] == tokenizer.cls_token_id
            continue
        places = windows.get_context_offsets()[number]
        assert context[places[start][0] : places[end][1]].strip() == "Oslo"  # type: ignore[index]
        found += 1
    assert found >= 1
    covered = {place for places in windows.get_context_offsets() for place in places if place}
    assert "".join(context[begin:end] for begin, end in sorted(covered)).replace(" ", "") == context.replace(" ", "")


def test_a_question_without_an_answer_points_at_the_token_for_it(tokenizer: Any) -> None:
    windows = cut_windows(tokenizer, ["Where?"], [CONTEXT], WindowSettings(60, 8, pad=False), str)
    starts, ends = windows.locate_answers([Answers([], [])])
    assert starts == ends == list(windows.cls_index)
    assert windows.columns["input_ids"][0][starts[0]] == tokenizer.cls_token_id
