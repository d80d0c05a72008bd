"""Run some cases of tests that have many: `pytest --cases=3`."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, default=0, help="the most cases to run of a test that has several; 0: all")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first case of each test, the last, and those at equal distances between them."""
    most = config.getoption("--cases")
    if not most:
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {id(case) for group in cases.values() for case in sample(group, most)}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]


def sample(group: list[pytest.Item], most: int) -> list[pytest.Item]:
    """Return at most so many of a list, at equal distances."""
    if len(group) <= most:
        return group
    return [group[number * (len(group) - 1) // max(most - 1, 1)] for number in range(most)]
