"""What must not be written down: tokens, keys and passwords among arguments."""

from __future__ import annotations

import re
from typing import Any

# Inside a dict of settings `pad_token` and the like are words, not secrets.
_SECRET = re.compile(r"(^|_)(hub_token|auth_token|access_token|api_token|api_?key|password|secret)$", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether an argument of this name holds something that only its owner may see.

    >>> is_secret("hub_token"), is_secret("wandb_api_key"), is_secret("pad_token"), is_secret("max_steps")
    (True, True, False, False)
    """
    return bool(_SECRET.search(name))


def redacted(name: str) -> str:
    """What stands in its place: `<HUB_TOKEN>`."""
    return f"<{name.upper()}>"


def shown(name: str, value: Any) -> str:
    """`name=value` for a message."""
    return f"{name}={redacted(name)}" if is_secret(name) or name.endswith("_token") else f"{name}={value!r}"
