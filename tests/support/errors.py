"""The error that a call raises."""

from __future__ import annotations

from typing import Any

import pytest


def raised(call: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value
