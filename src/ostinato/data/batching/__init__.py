"""Divide rows into batches: by count, by tokens, by length, or packed end to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import split_by_length
else:
    __getattr__ = load_on_use(__name__)
