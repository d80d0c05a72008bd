"""Settings of a loader, and notices that are heard anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ostinato.arguments.settings import LoaderSettings
from ostinato.core.notices import forget_notices
from tests.support.loader_settings import make_loader_settings


@pytest.fixture
def loader_settings() -> Callable[..., LoaderSettings]:
    """`loader_settings(num_workers=2)`: the defaults, with changes."""
    return make_loader_settings


@pytest.fixture(autouse=True)
def fresh_notices() -> Iterator[None]:
    """Every test hears what is said once."""
    forget_notices()
    yield
    forget_notices()
