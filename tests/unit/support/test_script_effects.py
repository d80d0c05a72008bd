"""What scripts do outside themselves is noticed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support import tiny
from tests.support.script_effects import describe_outside, watch_calls

SEEN: list[int] = []


class Spy:
    calls: list[int] = []

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {"a": [torch.zeros(2)]}

    def __call__(self) -> None:
        self.seen["a"].append(1)


def changed_by(script: Callable[[], Any]) -> list[str]:
    before = describe_outside(script)
    script()
    after = describe_outside(script)
    return [name for name in before if before[name] != after[name]]


def test_a_list_of_the_test() -> None:
    seen: list[int] = []
    assert changed_by(lambda: seen.append(1)) == ["seen"]


def test_a_list_of_the_file() -> None:
    assert changed_by(lambda: SEEN.append(1)) == ["SEEN"]


def test_through_functions_objects_and_classes() -> None:
    seen: set[int] = set()
    spy = Spy()

    def inner() -> None:
        seen.add(1)

    assert changed_by(lambda: inner()) == ["inner"]
    assert changed_by(lambda: spy()) == ["spy"]
    assert changed_by(lambda: spy.seen["a"][0].add_(1)) == ["spy"]
    assert changed_by(lambda: Spy.calls.append(1)) == ["Spy"]
    assert changed_by(spy) == ["the script"]
    assert changed_by(partial(spy)) == ["the script"]


def test_a_variable_that_is_set() -> None:
    count = 0

    def script() -> None:
        nonlocal count
        count += 1

    assert changed_by(script) == ["count"]


def test_a_model_and_a_tensor() -> None:
    model, tensor = tiny.regression(), torch.zeros(2)
    assert changed_by(lambda: torch.nn.init.zeros_(model.inner.weight)) == ["model"]
    assert changed_by(lambda: tensor.add_(1)) == ["tensor"]


def test_files(tmp_path: Path) -> None:
    assert changed_by(lambda: (tmp_path / "a").write_text("a")) == ["tmp_path"]
    assert changed_by(lambda: (tmp_path / "a").read_text()) == []


def test_what_a_script_makes_itself_does_not_matter() -> None:
    rows, options = tiny.regression_rows(), {"a": (1, 2)}
    elsewhere = SimpleNamespace(count=0)  # not of the tests: pytest's own fixtures change all the time

    def script() -> Any:
        elsewhere.count += 1
        seen = [*rows, *options]
        seen.clear()
        return tiny.regression()

    assert changed_by(script) == []


def test_calls_of_code_in_a_folder() -> None:
    here = Path(__file__).parent
    with watch_calls(here) as called:
        SEEN.copy()
        Spy()
    assert called == {f"{__name__}.__init__"}
    with watch_calls(here / "elsewhere") as called:
        Spy()
    assert called == set()


@pytest.fixture(autouse=True)
def forget() -> None:
    SEEN.clear()
    Spy.calls.clear()
