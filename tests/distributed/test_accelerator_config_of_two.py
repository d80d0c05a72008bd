"""`accelerator_config` on two processes: the rows of each process and the losses are those of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.launcher import launch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
WORKER = Path(__file__).with_name("split_worker.py")


def run(out: Path, library: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    out.mkdir()
    launch(WORKER, out, library, json.dumps(settings))
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    "settings", [{"split_batches": True}, {"use_seedable_sampler": False}], ids=["split", "drawn"]
)
def test_rows_and_losses(tmp_path: Path, settings: dict[str, Any]) -> None:
    ours, theirs = (run(tmp_path / name, name, settings) for name in ("ostinato", "transformers"))
    for mine, its in zip(ours, theirs, strict=True):
        assert mine == {**its, "losses": pytest.approx(its["losses"], rel=1e-6)}
