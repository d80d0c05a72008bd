"""The names of `transformers.integrations` that concern experiment trackers, for scripts that change the package only.

from ostinato.integrations import TensorBoardCallback, is_wandb_available
"""

from __future__ import annotations

from typing import Any

from .. import trackers


def __getattr__(name: str) -> Any:
    return getattr(trackers, name)
