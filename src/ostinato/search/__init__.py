"""Hyper-parameter search: what is tried, which library proposes it, and what remains of it on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import (
        backends,
        best_trial,
        defaults,
        reports,
        session,
        short_names,
        trial_setup,
        tune_checkpoint,
    )
else:
    __getattr__ = load_on_use(__name__)
