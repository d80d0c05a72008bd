"""Where the time goes: planted delays are found under their own name."""

from __future__ import annotations

import time

import pytest

from ostinato.core.timing import TimeLedger


def test_nested_blocks_are_counted_once() -> None:
    ledger = TimeLedger()
    with ledger.measure("evaluation"), ledger.measure("saving"):
        time.sleep(0.05)
    assert ledger.saving >= 0.05
    assert ledger.evaluation < 0.04


def test_a_failing_block_is_counted() -> None:
    ledger = TimeLedger()
    with pytest.raises(ValueError, match="broken"), ledger.measure("evaluation"):
        time.sleep(0.01)
        raise ValueError("broken")
    assert ledger.evaluation >= 0.01
