"""Resuming with other arguments: optimizer and base rates are the checkpoint's, the shape of the schedule is now's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny
from tests.support.apis import Api

LINEAR = [0.01, 0.00875, 0.0075, 0.00625]  # of the four steps before the checkpoint
CASES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "as it was": ({}, [0.005, 0.00375, 0.0025, 0.00125]),
    "another rate": ({"learning_rate": 0.5}, [0.005, 0.00375, 0.0025, 0.00125]),
    "another shape": ({"lr_scheduler_type": "constant"}, [0.005, 0.01, 0.01, 0.01]),
    "a longer run": ({"max_steps": 10}, [0.005, 0.005, 0.004, 0.003, 0.002, 0.001]),
    "a warmup": ({"warmup_steps": 6}, [0.005, 0.05 / 6, 0.01, 0.005]),
}


@pytest.mark.parametrize("case", CASES)
def test_rates(case: str, api: Api, tmp_path: Path) -> None:
    changes, expected = CASES[case]
    base = dict(
        per_device_train_batch_size=4,
        max_steps=8,
        learning_rate=0.01,
        weight_decay=0.1,
        save_strategy="steps",
        save_steps=4,
    )
    api.fit(tiny.regression(), tiny.regression_rows(), **base)
    shutil.rmtree(tmp_path / "checkpoint-8")
    args = api.args(**{**base, "weight_decay": 0.5, "adam_beta1": 0.5, "save_strategy": "no", **changes})
    resumed = api.trainer(tiny.regression(), args, train_dataset=tiny.regression_rows())
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    rates = [entry["learning_rate"] for entry in resumed.state.log_history if "learning_rate" in entry]
    assert rates == pytest.approx([*LINEAR, *expected])
    group = resumed.optimizer.param_groups[0]
    assert (group["weight_decay"], group["betas"][0]) == (0.1, 0.9)


def test_the_first_log_and_the_later_checkpoints(api: Api, tmp_path: Path) -> None:
    """A run that goes on from an older checkpoint, inside a window of logs."""
    base = dict(per_device_train_batch_size=4, max_steps=6, logging_steps=4, save_strategy="steps", save_steps=3)
    whole = api.fit(tiny.regression(), tiny.regression_rows(), **base)
    resumed = api.trainer(tiny.regression(), api.args(**base), train_dataset=tiny.regression_rows())
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    first = [trainer.state.log_history[0]["loss"] for trainer in (whole, resumed)]
    kept = [path.name for path in tmp_path.glob("run-*/checkpoint-*")]
    if api.is_ours:  # the mean of the whole window; the later checkpoint is kept
        assert first[0] == first[1] and kept == ["checkpoint-6"]
    else:
        assert first[0] != pytest.approx(first[1]) and not kept
