"""How far it is from `train()` to `forward`, and how much the library does per step."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def one_batch():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import one_batch
    finally:
        sys.path.pop(0)
    return one_batch


def test_forward_is_near(one_batch) -> None:
    trace = one_batch.trace_ostinato()
    assert trace.hops[0] == "trainer.Trainer.train"
    assert len(trace.hops) <= 8
    assert len(trace.calls) <= 65


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older interpreters do not name methods in full")
def test_the_page_is_what_the_code_does(one_batch) -> None:
    page = one_batch.page(one_batch.trace_ostinato())
    assert (ROOT / "docs" / "one-batch.md").read_text(encoding="utf-8") == page, "run benchmarks/one_batch.py again"
