"""Orders of rows, computed from the seed and the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import epoch_sampler
else:
    __getattr__ = load_on_use(__name__)
