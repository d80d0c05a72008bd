"""Metrics of training batches: however batches are taken in, the result is that of all rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.core.errors import MetricError
from ostinato.core.eval_prediction import EvalPrediction
from ostinato.metrics import metric
from ostinato.metrics.adapters import Stream
from ostinato.metrics.classification import Accuracy
from ostinato.metrics.train_window import MetricWindow


def window_of(*metrics) -> MetricWindow:
    return MetricWindow([Stream.wrap(one) for one in metrics], {})


def shown(window: MetricWindow, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> MetricWindow:
    for logits, labels in batches:
        window.add(EvalPrediction(logits, labels))
    return window


NUMBERS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, float("inf"), float("-inf")]), st.floats(-3, 3, width=16))


@st.composite
def batches(draw, classes: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of all sizes, of one type; ties, infinities and labels that do not count among them."""
    dtype = draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]))
    found = []
    for rows in draw(st.lists(st.integers(1, 5), min_size=1, max_size=6)):
        logits = draw(st.lists(st.lists(NUMBERS, min_size=classes, max_size=classes), min_size=rows, max_size=rows))
        labels = draw(st.lists(st.sampled_from([-100, *range(classes)]), min_size=rows, max_size=rows))
        found.append((torch.tensor(logits, dtype=dtype), torch.tensor(labels)))
    return found


@settings(deadline=None, max_examples=60)
@given(batches(), st.integers(0, 6))
def test_batches_equal_all_rows_at_once(parts, saved_after: int) -> None:
    logits = torch.cat([one for one, _ in parts])
    labels = torch.cat([one for _, one in parts])
    expected = {}
    if (labels != -100).any():
        whole = metric("accuracy")
        whole.update(logits, labels)
        expected = whole.compute()
    assert shown(window_of(metric("accuracy")), parts).drain() == expected
    before = shown(window_of(metric("accuracy")), parts[:saved_after])
    resumed = window_of(metric("accuracy"))
    resumed.restore([before.states()])
    assert shown(resumed, parts[saved_after:]).drain() == expected


ROWS = torch.tensor([[0.1, 0.9], [0.8, 0.2]])


def test_every_log_starts_a_new_window() -> None:
    window = shown(window_of(metric("accuracy")), [(ROWS, torch.tensor([1, 1]))] * 3)
    assert window.drain() == {"accuracy": 0.5}
    assert window.drain() == {}


@pytest.mark.parametrize(
    "metrics",
    [
        [metric("accuracy"), metric("f1")],
        [metric("accuracy", interval=0.9)],
        [type("Mine", (Accuracy,), {})()],
        [metric("balanced_accuracy")],
    ],
)
def test_every_kind_of_batch(metrics) -> None:
    labels = torch.tensor([1, 1])
    found = shown(window_of(*metrics), [(ROWS, labels)] * 3).drain()
    for one in metrics:
        one.reset()
        one.update(torch.cat([ROWS] * 3), torch.cat([labels] * 3))
        assert one.compute().items() <= found.items()


def test_a_nan_is_the_highest_as_everywhere_else() -> None:
    unknown = torch.tensor([[0.9, float("nan")], [float("nan"), 0.2]])
    found = shown(window_of(metric("accuracy")), [(ROWS, torch.tensor([1, 0])), (unknown, torch.tensor([1, 1]))])
    assert found.drain() == {"accuracy": 0.75}


@pytest.mark.parametrize("label", [2, -1])
def test_a_label_outside_the_classes_is_an_error(label: int) -> None:
    window = shown(window_of(metric("accuracy")), [(ROWS, torch.tensor([1, 0])), (ROWS, torch.tensor([1, label]))])
    with pytest.raises(MetricError, match=f"label {label} is not"):
        window.drain()


@pytest.mark.parametrize("times", [1, 100])  # few numbers, and so many that they wait as tensors
def test_batches_may_be_overwritten_afterwards(times: int) -> None:
    window = window_of(metric("accuracy"))
    for _ in range(3):
        logits, labels = ROWS.repeat(times, 1), torch.tensor([1, 0]).repeat(times)
        shown(window, [(logits, labels)])
        logits *= -1
    logits, labels = ROWS.repeat(times, 1), torch.tensor([1, 0]).repeat(times)
    shown(window, [(logits, labels)])
    labels.zero_()
    assert window.drain() == {"accuracy": 1.0}


def test_counts_are_numbers_that_can_be_saved() -> None:
    (state,) = shown(window_of(metric("accuracy")), [(ROWS, torch.tensor([1, 1]))] * 3).states()
    assert state["rows"] == 6 and state["total.correct"]["values"] == 3.0
    assert np.dtype(state["total.correct"]["dtype"]) == np.float64
