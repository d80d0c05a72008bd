"""Settings of a loader with everything at its default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ostinato.arguments.settings import LoaderSettings
from ostinato.core.notices import forget_notices

DEFAULTS = dict(
    drop_last=False,
    num_workers=0,
    pin_memory=True,
    persistent_workers=False,
    prefetch_factor=None,
    multiprocessing_context=None,
    in_order=True,
    sampling="random",
    length_column="length",
    seed=None,
    rank=0,
    world_size=1,
)


@pytest.fixture
def loader_settings() -> Callable[..., LoaderSettings]:
    """`loader_settings(num_workers=2)`: the defaults, with changes."""

    def make(**changes: Any) -> LoaderSettings:
        return LoaderSettings(**{**DEFAULTS, **changes})

    return make


@pytest.fixture(autouse=True)
def fresh_notices() -> Iterator[None]:
    """Every test hears what is said once."""
    forget_notices()
    yield
    forget_notices()
