"""A hub on this machine in place of the real one, for both libraries."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.hub_server import Hub, serving


@contextmanager
def local_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Whatever asks the hub asks this one; nobody waits between two attempts."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    with serving() as hub, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Use 'content=", category=DeprecationWarning)  # the client's own
        point_at(monkeypatch, hub.url)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(_http, "time", SimpleNamespace(**{**vars(_http.time), "sleep": lambda seconds: None}))
        try:
            yield hub
        finally:
            _http.close_session()
            for api in clients():
                if api._thread_pool is not None:
                    api._thread_pool.shutdown()
                    api._thread_pool = None


def point_at(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", url)
    for api in clients():
        monkeypatch.setattr(api, "endpoint", url)


def clients() -> list[Any]:
    """Every client there is: transformers keeps one of its own."""
    from huggingface_hub import hf_api

    return [one for one in gc.get_objects() if type(one) is hf_api.HfApi]
