"""Emptying the memory cache of a device."""

from __future__ import annotations

import pytest
import torch

from ostinato.strategies.device_cache import empty_cache


def test_the_cache_of_the_device_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied = []
    for device in ("cuda", "mps"):
        monkeypatch.setattr(getattr(torch, device), "empty_cache", lambda device=device: emptied.append(device))
    empty_cache(torch.device("cuda", 0))
    empty_cache(torch.device("mps"))
    empty_cache(torch.device("cpu"))
    assert emptied == ["cuda", "mps"]
