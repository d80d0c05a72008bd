"""Names of transformers and accelerate that other code uses, as views on Ostinato's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import accelerator_view, install, legacy_names
else:
    __getattr__ = load_on_use(__name__)
