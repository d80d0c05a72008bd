"""Runs without a journal: the page of what `trainer_state.json` tells."""

from __future__ import annotations

from pathlib import Path

from ostinato.report.compare import find_first_difference
from ostinato.report.journal_reader import read_run
from tests.support import tiny
from tests.support.apis import Api


def test_our_run_of_the_same_losses_is_compared_with_that_of_transformers(tmp_path: Path) -> None:
    for name in ("ostinato", "transformers"):
        api = Api(name, tmp_path / name)
        api.fit(tiny.regression(), tiny.regression_rows(), max_steps=4, save_steps=4, save_strategy="steps", seed=1)
    difference = find_first_difference(read_run(tmp_path / "ostinato"), read_run(tmp_path / "transformers"))
    assert difference.compared == 4 and difference.step is None, difference
