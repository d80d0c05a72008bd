"""Where parameters live, how processes exchange data, and the number formats of computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import batch_transfer, called_model, choose, optimizer_rules, placement, precision
else:
    __getattr__ = load_on_use(__name__)
