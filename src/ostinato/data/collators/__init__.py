"""Collators: callables that turn a list of rows into a batch. One file per family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import default, padding
else:
    __getattr__ = load_on_use(__name__)
