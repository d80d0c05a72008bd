"""What an evaluation is for, and the loader that carries it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader

from ostinato.data.eval_set import EvalSet
from ostinato.evaluation.request import (
    EvalRequest,
    attach_request,
    name_evaluated_set,
    read_request,
    resolve_request,
)

DEV = EvalSet([1, 2], batch_size=2)


@pytest.mark.parametrize(
    ("description", "prefix", "sets", "name"),
    [
        ("Evaluation", "eval", None, "evaluation set"),
        ("Evaluation", "eval_a", {"a": 1}, "evaluation set 'a'"),
        ("Evaluation", "dev", {"a": 1}, "evaluation set"),
        ("Prediction", "test", {"a": 1}, "prediction set"),
    ],
)
def test_what_a_set_is_called(description: str, prefix: str, sets: Any, name: str) -> None:
    assert name_evaluated_set(description, prefix, sets) == name


@pytest.mark.parametrize(
    ("sets", "evaluated", "options"),
    [(DEV, None, DEV), ([1], None, None), ({"dev": DEV}, "dev", DEV), ([1], DEV, DEV), (DEV, [1], None)],
)
def test_the_options_are_those_of_the_evaluated_set(sets: Any, evaluated: Any, options: EvalSet | None) -> None:
    host: Any = SimpleNamespace(eval_dataset=sets)
    assert resolve_request(host, evaluated, only_metrics=True) == EvalRequest(options, only_metrics=True)


def test_any_loader_carries_its_request() -> None:
    request, batches = EvalRequest(DEV, only_metrics=True), [{"x": 1}, {"x": 2}]
    assert read_request(batches) == EvalRequest()
    carrying = attach_request(batches, request)
    assert read_request(carrying) is request and list(carrying) == batches and len(carrying) == 2
    loader = DataLoader([1, 2])  # type: ignore[arg-type]
    assert attach_request(loader, request) is loader and read_request(loader) is request
