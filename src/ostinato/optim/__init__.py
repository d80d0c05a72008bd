"""Optimizers, parameter groups and learning-rate schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import backward_step, eight_bit, groups, optimizers, schedule_free, schedulers
else:
    __getattr__ = load_on_use(__name__)
