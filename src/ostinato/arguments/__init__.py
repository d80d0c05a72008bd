"""`TrainingArguments`: declarations, checks, and the frozen settings that each part receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import settings
else:
    __getattr__ = load_on_use(__name__)
