"""How far it is from `train()` and `evaluate()` to `forward`."""

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


@pytest.mark.parametrize(("evaluates", "start"), [(False, "train"), (True, "evaluate")])
def test_forward_is_near(one_batch, evaluates: bool, start: str) -> None:
    hops = one_batch.trace_ostinato(evaluates=evaluates).hops
    assert hops[0] == f"trainer.Trainer.{start}"
    assert len(hops) <= 7, hops


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older interpreters do not name methods in full")
@pytest.mark.parametrize("name", ["one-batch.md", "one-evaluation.md"])
def test_the_page_is_what_the_code_does(one_batch, name: str) -> None:
    evaluates = one_batch.PAGES[name]
    page = one_batch.format_page(one_batch.trace_ostinato(evaluates=evaluates), evaluates=evaluates)
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page, "run benchmarks/one_batch.py again"
