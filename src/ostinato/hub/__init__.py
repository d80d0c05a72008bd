"""The Hugging Face hub: repositories, uploads beside training, model cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import card_facts, model_card, publisher, uploads
else:
    __getattr__ = load_on_use(__name__)
