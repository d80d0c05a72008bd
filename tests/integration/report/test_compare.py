"""Runs compared: a planted difference is found at its step, and settings that differ are named."""

from __future__ import annotations

from pathlib import Path

from ostinato.report.compare import find_differences, find_first_difference, summarize_comparison
from ostinato.report.journal_reader import read_run
from tests.support import tiny
from tests.support.apis import Api


def test_runs_with_another_seed_differ_at_the_first_step(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2), ("c", 1)):
        api = Api("ostinato", tmp_path / name)
        api.fit(tiny.regression(), tiny.regression_rows(), max_steps=4, seed=seed, data_seed=seed)
    a, b, c = (read_run(tmp_path / name) for name in "abc")
    assert find_first_difference(a, c).step is None
    assert find_first_difference(a, b).step == 1
    told = list(summarize_comparison([a, b], find_differences([a, b])))
    assert "differ at step 1" in told[0] and any(line.startswith("  seed: 1 | 2") for line in told)
