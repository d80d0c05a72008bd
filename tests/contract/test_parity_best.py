"""Which checkpoint is the best, and which ones are left when there may only be so many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import tiny
from tests.support.apis import Api

pytest.importorskip("transformers")

BY_EPOCH = {"eval_strategy": "epoch", "save_strategy": "steps", "save_steps": 2}


def fit(api: Api, scores: dict[int, float], *, stop_at: int | None = None, resume: bool = False, **arguments: Any):
    """Train two epochs of four steps; an evaluation after step n scores `scores[n]`, and lower is better."""

    class Stop(api.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == stop_at:
                raise InterruptedError

    trainer = api.trainer(
        tiny.regression(),
        api.args(
            per_device_train_batch_size=4,
            num_train_epochs=2,
            metric_for_best_model="score",
            greater_is_better=False,
            **{**BY_EPOCH, **arguments},
        ),
        train_dataset=tiny.regression_rows(16),
        eval_dataset=tiny.regression_rows(4),
        compute_metrics=lambda prediction: {"score": scores.get(trainer.state.global_step, 9.0)},
        callbacks=[Stop()],
    )
    try:
        trainer.train(resume_from_checkpoint=resume or None)
    except InterruptedError:
        assert stop_at is not None
    return trainer


def kept(directory: Path) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in directory.glob("checkpoint-*"))


def best_of(state: Any) -> tuple[str | None, int, float]:
    """The best by its name, its step, its score."""
    path = state.best_model_checkpoint
    return path and str(Path(path)), state.best_global_step, state.best_metric


@pytest.mark.parametrize(("limit", "left"), [(None, [2, 4, 6, 8]), (3, [4, 6, 8]), (2, [4, 8])])
def test_a_checkpoint_that_was_written_before_it_was_evaluated(api: Api, limit: int | None, left: list[int]) -> None:
    """The end of an epoch is evaluated after the checkpoint of its last step was written: it may still be the best."""
    trainer = fit(api, {4: 1.0, 8: 2.0}, save_total_limit=limit)
    best = str(api.output_dir / "checkpoint-4")
    assert best_of(trainer.state) == (best, 4, 1.0)
    assert kept(api.output_dir) == left
    written = json.loads((api.output_dir / "checkpoint-8" / "trainer_state.json").read_text())
    assert (written["best_model_checkpoint"], written["best_global_step"]) == (best, 4)


def test_a_run_that_was_broken_off_keeps_its_best(api: Api) -> None:
    fit(api, {4: 1.0}, stop_at=7, save_total_limit=3)
    assert kept(api.output_dir) == [2, 4, 6]
    trainer = fit(api, {8: 2.0}, resume=True, save_total_limit=2)
    assert best_of(trainer.state) == (str(api.output_dir / "checkpoint-4"), 4, 1.0)
    assert kept(api.output_dir) == [4, 8]


@pytest.mark.parametrize("load_best", [False, True])
def test_a_directory_that_was_moved_keeps_its_best(api: Api, load_best: bool) -> None:
    """The path that the checkpoints remember leads nowhere."""
    schedule = {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": load_best, "save_total_limit": 2}
    first, second = api.output_dir / "first", api.output_dir / "second"
    fit(api, {2: 1.0}, stop_at=5, output_dir=str(first), **schedule)
    first.rename(second)
    trainer = fit(api, {}, resume=True, output_dir=str(second), **schedule)
    assert best_of(trainer.state) == (str(second / "checkpoint-2"), 2, 1.0)
    assert kept(second) == [2, 8]


def test_the_last_evaluation_is_the_best(api: Api) -> None:
    """transformers looks for the best when it saves, and saves nothing after the last evaluation."""
    trainer = fit(api, {4: 2.0, 8: 1.0}, save_total_limit=1)
    best = 8 if api.is_ours else 4
    assert best_of(trainer.state) == (str(api.output_dir / f"checkpoint-{best}"), 8, 1.0)
    assert kept(api.output_dir) == [best]


def test_one_checkpoint_may_be_kept(api: Api) -> None:
    """transformers deletes the newest, from which one could go on."""
    trainer = fit(api, {4: 1.0, 8: 2.0}, save_total_limit=1)
    assert best_of(trainer.state)[1:] == (4, 1.0)
    assert kept(api.output_dir) == ([4, 8] if api.is_ours else [4])


def test_broken_off_before_the_evaluation_of_an_epoch(api: Api) -> None:
    """transformers never evaluates that epoch, and deletes what would have been the best."""
    fit(api, {4: 1.0}, stop_at=5, save_total_limit=2)
    trainer = fit(api, {4: 1.0, 8: 2.0}, resume=True, save_total_limit=2)
    if api.is_ours:
        assert best_of(trainer.state) == (str(api.output_dir / "checkpoint-4"), 4, 1.0)
        assert kept(api.output_dir) == [4, 8]
    else:
        assert best_of(trainer.state) == (None, 8, 2.0)
        assert kept(api.output_dir) == [6, 8]
