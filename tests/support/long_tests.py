"""Tests that take minutes: `make long` runs them, `make test` skips them."""

from __future__ import annotations

import os

import pytest

LONG = os.environ.get("OSTINATO_LONG_TESTS", "") not in ("", "0")

long_only = pytest.mark.skipif(not LONG, reason="takes minutes: make long")
