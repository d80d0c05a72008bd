"""Settings of a loader with everything at its default."""

from __future__ import annotations

from typing import Any

from ostinato.arguments.settings import LoaderSettings

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


def make_loader_settings(**changes: Any) -> LoaderSettings:
    """Return the defaults, with changes."""
    return LoaderSettings(**{**DEFAULTS, **changes})
