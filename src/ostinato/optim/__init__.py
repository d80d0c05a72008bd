"""Optimizers, parameter groups and learning-rate schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import groups, optimizers, schedulers
else:
    __getattr__ = load_on_use(__name__)
