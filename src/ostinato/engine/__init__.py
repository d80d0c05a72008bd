"""The training loop and the order of its events. Nothing here knows how a part does its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import (
        agreement,
        batch_size_search,
        finish,
        flops,
        loader_plan,
        loop,
        meters,
        report,
        resume,
        run,
        save_outcome,
        saver,
        setup,
        signals,
        token_count,
        utilization,
    )
else:
    __getattr__ = load_on_use(__name__)
