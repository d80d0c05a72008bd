"""A hub of its own for every test that wants one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hub_fixtures import local_hub
from tests.support.hub_server import Hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with local_hub(monkeypatch) as hub:
        yield hub
