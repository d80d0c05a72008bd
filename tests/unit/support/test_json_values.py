"""Values that are written as JSON and read again: the same, of the same type, in the same order, or refused."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.digests import Digest
from tests.support.json_values import INLINE, CannotRecordError, decode, encode
from tests.support.recordings import fold, format_json, unfold
from tests.support.records import EVENTS, Event, Record, assert_same, assert_same_run

transformers = pytest.importorskip("transformers")


def pass_through_json(value: Any) -> Any:
    tests = {"test": {"source": "", "calls": [{"of": "", "value": encode(value)}]}}
    return decode(unfold(json.loads(format_json(fold(tests))))["test"]["calls"][0]["value"])


VALUES = [
    *(None, True, False, 0, 1, -(10**30), 0.1, -0.0, 1e-320, 1e300, math.inf, -math.inf, math.nan, "", "ä\n$tuple"),
    *([], {}, (), set(), frozenset({1, 2}), {"a", "b"}, [1, (2.0, [None])], {"b": 1, "a": {"c": (1,)}}),
    *({1: "a", "b": 2}, {"$tuple": [1]}, {(1, 2): 3.0}, Path("a/b"), torch.Size([2, 3]), torch.float32, ValueError),
    *(np.float32(0.1), np.float64(0.1), np.int64(3), np.bool_(True), np.float64("nan"), np.array(["ab", "c"])),
    torch.tensor([[0.1, math.nan, -math.inf]]),
    *(torch.tensor(3), torch.zeros(0, 2), torch.tensor([True]), torch.tensor([0.5, -1.25, 3.0], dtype=torch.bfloat16)),
    *(np.array([[0.1, math.nan]], dtype=np.float32), np.array(5), np.zeros((2, 0), dtype=np.int8)),
    transformers.IntervalStrategy.STEPS,
    transformers.trainer_utils.TrainOutput(3, 0.5, {"train_loss": 0.5, "note": (1, 2)}),
    transformers.TrainerControl(should_save=True),
]


# Numbered: the text of a set differs from process to process, and pytest's workers must agree on the names of tests.
@pytest.mark.parametrize("value", VALUES, ids=[f"{at}-{type(value).__name__}" for at, value in enumerate(VALUES)])
def test_the_same_comes_back(value: Any) -> None:
    again = pass_through_json(value)
    assert type(again) is type(value)
    assert_same(again, value)
    assert repr(again) == repr(value)


def test_keys_keep_their_order() -> None:
    assert list(pass_through_json({"z": 1, "a": 2, "m": 3})) == ["z", "a", "m"]


def test_many_numbers_come_back_as_a_digest() -> None:
    for value in (torch.randn(INLINE + 1), np.arange(INLINE + 1.0)):
        again = pass_through_json([value])[0]
        assert isinstance(again, Digest)
        assert_same(again, value)
        with pytest.raises(AssertionError, match="make contract"):
            assert_same(again, value + 1)


def test_the_clock_is_not_recorded() -> None:
    again = pass_through_json({"eval_runtime": 3.5, "eval_loss": 0.25})
    assert again == {"eval_runtime": 0.0, "eval_loss": 0.25}


class Local:
    pass


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Local(),
        lambda: 1,
        iter([1]),
        ValueError("a"),
        OrderedDict(a=1),
        torch.nn.Linear(1, 1),
        torch.nn.Parameter(torch.zeros(1)),
        torch.zeros(2).to_sparse(),
        torch.zeros(2, dtype=torch.complex64),
        np.array([object()]),
        type("Nowhere", (), {}),
        [{"a": (object(),)}],
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_come_back_is_refused(value: Any) -> None:
    with pytest.raises(CannotRecordError):
        encode(value)


def make_record() -> Record:
    events = [Event(name, 0, 0, (), ("logs", "model")) for name in EVENTS[:3]]
    events += [
        Event("on_log", 0, 0.0, ("should_log", "should_save"), ("logs",)),
        Event("on_log", 3, 0.1, (), ("logs",)),
    ]
    return Record(
        "transformers",
        log_history=[{"step": 1, "loss": math.nan}, {"loss": 0.1, "eval_runtime": 1.0}],
        events=events,
        weights={"a": torch.arange(3.0), "b": torch.randn(40, 40)},
        output=transformers.trainer_utils.TrainOutput(3, 0.5, {"train_loss": 0.5}),
        state={"epoch": 1.0, "best_metric": None},
        result=[],
        files=["a", "b/c"],
    )


def test_a_record() -> None:
    record = make_record()
    again = pass_through_json(record)
    assert again.events == record.events
    assert [type(event.epoch) for event in again.events] == [type(event.epoch) for event in record.events]
    assert (again.files, again.result, again.output) == (record.files, [], record.output)
    assert_same_run(again, record)


@pytest.mark.parametrize(
    "field", ["log_history", "key order", "events", "flags", "weights", "state", "output", "result"]
)
def test_every_field_of_a_record_can_differ(field: str) -> None:
    record = make_record()
    again = pass_through_json(record)
    if field == "log_history":
        record.log_history[1]["loss"] = math.nextafter(0.1, 1)
    elif field == "key order":
        record.log_history[0] = dict(reversed(record.log_history[0].items()))
    elif field == "events":
        record.events[0], record.events[1] = record.events[1], record.events[0]
    elif field == "flags":
        record.events[3] = record.events[3]._replace(flags=("should_log",))
    elif field == "weights":
        record.weights["b"][39, 39] += 1e-5
    elif field == "state":
        record.state["epoch"] = 1
    elif field == "output":
        record.output = record.output._replace(training_loss=0.25)
    else:
        record.result = None
    with pytest.raises(AssertionError):
        assert_same_run(again, record)


def test_events_whose_keywords_vary_are_refused() -> None:
    record = Record("transformers", events=[Event("on_log", 0, 0, (), ("a",)), Event("on_log", 1, 0, (), ("b",))])
    with pytest.raises(CannotRecordError, match="on_log"):
        encode(record)
