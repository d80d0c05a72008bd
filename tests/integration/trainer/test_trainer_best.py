"""The best model, the checkpoints that are kept, and what an error leaves behind."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import ostinato
from ostinato.checkpoint.atomic import verify
from ostinato.checkpoint.retention import get_last_checkpoint
from tests.support import tiny
from tests.support.apis import Api
from tests.support.records import assert_same, first_difference

ROWS = tiny.regression_rows(24)
BASE = dict(
    per_device_train_batch_size=4, max_steps=12, metric_for_best_model="score", greater_is_better=True,
    write_report=False,
)  # fmt: skip


class Remember(ostinato.TrainerCallback):
    """The weights and the score at every evaluation."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int, dict[str, torch.Tensor]]] = []

    def on_evaluate(self, args, state, control, metrics=None, model=None, **kwargs) -> None:
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        self.seen.append((metrics["eval_score"], state.global_step, weights))

    @property
    def best(self) -> tuple[float, int, dict[str, torch.Tensor]]:
        return max(self.seen, key=lambda one: one[0])  # the first of equals


def scripted(scores):
    """A metric function that returns one score after the other."""
    left = iter(scores)

    def compute(prediction) -> dict[str, float]:
        return {"score": next(left)}

    return compute


def fit(api: Api, scores, **arguments: Any) -> tuple[Any, Remember]:
    remember = Remember()
    trainer = api.trainer(
        tiny.regression(dropout=0.2),
        api.args(**{**BASE, **arguments}),
        train_dataset=ROWS,
        eval_dataset=ROWS[:4],
        compute_metrics=scripted(scores),
        callbacks=[remember],
    )
    trainer.train()
    return trainer, remember


def checkpoints(api: Api) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in api.output_dir.glob("checkpoint-*"))


# -------------------------------------------------------------------------------------------------------------- best


SCHEDULES = {
    **{
        f"evaluate every {e}, save every {s}": dict(
            eval_strategy="steps", eval_steps=e, save_strategy="steps", save_steps=s
        )
        for e, s in itertools.product((2, 3, 4), repeat=2)
    },
    "save the best": dict(eval_strategy="steps", eval_steps=2, save_strategy="best"),
    "by epoch": dict(eval_strategy="epoch", save_strategy="epoch"),
    "evaluate by epoch, save by steps": dict(eval_strategy="epoch", save_strategy="steps", save_steps=4),
    "evaluate by steps, save by epoch": dict(eval_strategy="steps", eval_steps=4, save_strategy="epoch"),
    "keep one": dict(eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=3, save_total_limit=1),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_best_weights_come_back(ours: Api, schedule: str, seed: int) -> None:
    draw = random.Random(f"{schedule}{seed}")
    scores = [round(draw.random(), 3) for _ in range(12)]
    trainer, remember = fit(ours, scores, load_best_model_at_end=True, **SCHEDULES[schedule])
    score, step, weights = remember.best
    assert_same(weights, dict(trainer.model.state_dict()), "weights")
    assert (trainer.state.best_metric, trainer.state.best_global_step) == (score, step)
    assert Path(trainer.state.best_model_checkpoint).is_dir()


def test_equal_scores_keep_the_first(ours: Api) -> None:
    trainer, remember = fit(
        ours, [1.0] * 6, load_best_model_at_end=True, eval_strategy="steps", eval_steps=2, save_steps=2,
        save_strategy="steps",
    )  # fmt: skip
    assert trainer.state.best_global_step == 2
    assert_same(remember.seen[0][2], dict(trainer.model.state_dict()), "weights")


@pytest.mark.parametrize("scores", [[math.nan, 0.5, 0.7, math.nan, 0.6, 0.1], [math.nan] * 6])
def test_what_is_not_a_number_is_never_the_best(ours: Api, scores: list[float]) -> None:
    trainer, remember = fit(
        ours, scores, load_best_model_at_end=True, eval_strategy="steps", eval_steps=2, save_steps=2,
        save_strategy="steps",
    )  # fmt: skip
    numbers = [score for score in scores if score == score]
    assert trainer.state.best_metric == (max(numbers) if numbers else None)
    kept = remember.seen[scores.index(max(numbers))] if numbers else remember.seen[-1]
    assert_same(kept[2], dict(trainer.model.state_dict()), "weights")


def test_evaluations_that_are_no_numbers_end_with_patience(ours: Api) -> None:
    trainer = ours.trainer(
        tiny.regression(), ours.args(**{**BASE, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "no"}),
        train_dataset=ROWS, eval_dataset=ROWS[:4], compute_metrics=scripted([math.nan] * 12),
        callbacks=[ours.EarlyStoppingCallback(early_stopping_patience=3)],
    )  # fmt: skip
    trainer.train()
    assert trainer.state.global_step == 4  # the first is not compared with anything


def test_last_weights_stay_unless_asked(ours: Api) -> None:
    trainer, remember = fit(ours, [3, 2, 1], eval_strategy="steps", eval_steps=4, save_strategy="steps", save_steps=4)
    assert trainer.state.best_global_step == 4
    assert first_difference(remember.best[2], dict(trainer.model.state_dict()))
    assert_same(remember.seen[-1][2], dict(trainer.model.state_dict()), "weights")


def test_best_is_kept_apart_when_no_checkpoint_is_due(ours: Api) -> None:
    """Step 4 is the best and no step to save at: its weights are no resume point."""
    schedule = dict(eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=5)
    trainer, _ = fit(ours, [1, 9, 3, 2, 4, 5], load_best_model_at_end=True, **schedule)
    best = Path(trainer.state.best_model_checkpoint)
    assert best.name == "best-model"
    assert best.parent == ours.output_dir
    assert checkpoints(ours) == [5, 10, 12]
    names = {path.name for path in best.iterdir()}
    assert not any("optimizer" in name or "rng" in name for name in names)
    assert Path(get_last_checkpoint(ours.output_dir)).name == "checkpoint-12"
    again = tiny.regression()
    ostinato.checkpoint.weights.load_weights(again, best)
    assert_same(dict(trainer.model.state_dict()), dict(again.state_dict()), "weights")


def test_best_apart_survives_rotation_and_resuming(ours: Api) -> None:
    schedule = dict(eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=5, save_total_limit=1)
    _, remember = fit(ours, [1, 9, 3, 2, 4, 5], load_best_model_at_end=True, **schedule)
    best = remember.best[2]
    ours.set_seed(42)
    trainer = ours.trainer(
        tiny.regression(dropout=0.2),
        ours.args(**{**BASE, **schedule, "load_best_model_at_end": True}),
        train_dataset=ROWS,
        eval_dataset=ROWS[:4],
        compute_metrics=scripted([4, 5]),
    )
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.best_global_step == 4
    assert_same(best, dict(trainer.model.state_dict()), "weights")


@pytest.mark.parametrize(
    ("patience", "scores", "stops_at"),
    [(1, [1, 5, 4, 9, 9, 9], 6), (2, [1, 5, 6, 3, 2, 7], 10), (5, [1, 2, 3, 2, 2, 2], 12)],
)
def test_early_stopping_ends_with_the_best(ours: Api, patience: int, scores: list[int], stops_at: int) -> None:
    remember = Remember()
    trainer = ours.trainer(
        tiny.regression(),
        ours.args(**{**BASE, **SAVING, "load_best_model_at_end": True}),
        train_dataset=ROWS,
        eval_dataset=ROWS[:4],
        compute_metrics=scripted(scores),
        callbacks=[remember, ours.EarlyStoppingCallback(early_stopping_patience=patience)],
    )
    assert trainer.train().global_step == stops_at
    assert_same(remember.best[2], dict(trainer.model.state_dict()), "weights")


def test_second_run_forgets_the_best_of_the_first(ours: Api) -> None:
    """Its model starts where the first ended; its best is the best of its own evaluations."""
    trainer, remember = fit(ours, [9, 8, 7, 6, 5, 4, 1, 2, 3, 2, 1, 0], load_best_model_at_end=True, **SAVING)
    assert trainer.state.best_global_step == 2
    remember.seen.clear()
    trainer.train()
    assert trainer.state.best_metric == 3
    assert_same(remember.best[2], dict(trainer.model.state_dict()), "weights")


def test_metric_that_does_not_exist(ours: Api) -> None:
    with pytest.raises(KeyError, match="eval_score"):
        fit(ours, [1] * 9, metric_for_best_model="scor", eval_strategy="steps", eval_steps=4, save_strategy="no")


# --------------------------------------------------------------------------------------------------------- retention


SAVING = dict(eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_limit_keeps_best_and_newest(ours: Api, limit: int) -> None:
    present: list[list[int]] = []

    class Look(ostinato.TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            present.append(checkpoints(ours))

    remember = Remember()
    trainer = ours.trainer(
        tiny.regression(),
        ours.args(**{**BASE, **SAVING, "save_total_limit": limit, "load_best_model_at_end": True}),
        train_dataset=ROWS,
        eval_dataset=ROWS[:4],
        compute_metrics=scripted([1, 9, 3, 2, 4, 5]),
        callbacks=[remember, Look()],
    )
    trainer.train()
    newest = [2, 4, 6, 8, 10, 12]
    for step, kept in zip(newest, present, strict=True):
        assert step in kept, "the newest is gone"
        assert step < 4 or 4 in kept, "the best is gone"
        assert len(kept) <= max(limit, 2)
    assert_same(remember.best[2], dict(trainer.model.state_dict()), "weights")


def test_no_limit_keeps_all(ours: Api) -> None:
    fit(ours, range(9), **SAVING)
    assert checkpoints(ours) == [2, 4, 6, 8, 10, 12]


# ------------------------------------------------------------------------------------------------------------ errors


def failing_at(call: int):
    calls = []

    def compute(prediction):
        calls.append(1)
        if len(calls) == call:
            raise ZeroDivisionError("mine")
        return {"score": 1.0}

    return compute


def trainer_with(api: Api, compute_metrics, **arguments: Any) -> Any:
    api.set_seed(42)
    return api.trainer(
        tiny.regression(dropout=0.2),
        api.args(**{**BASE, **arguments}),
        train_dataset=ROWS,
        eval_dataset=ROWS[:4],
        compute_metrics=compute_metrics,
    )


def test_failing_metric_does_not_cost_the_checkpoint(ours: Api) -> None:
    """Step 6 was to be evaluated and saved; the metric fails, and the run can go on from step 6."""
    schedule = dict(eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=6)
    trainer = trainer_with(ours, failing_at(2), **schedule)
    with pytest.raises(ZeroDivisionError, match="mine"):
        trainer.train()
    assert trainer.is_in_train is False
    assert checkpoints(ours) == [6]
    verify(ours.output_dir / "checkpoint-6")
    assert not list(ours.output_dir.glob(".*partial*"))
    whole = trainer_with(ours, failing_at(99), **schedule, output_dir=str(ours.output_dir / "whole"))
    whole.train()
    resumed = trainer_with(ours, failing_at(99), **schedule)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 12
    assert_same(dict(whole.model.state_dict()), dict(resumed.model.state_dict()), "weights")


def test_failing_metric_without_a_checkpoint_due(ours: Api) -> None:
    trainer = trainer_with(
        ours, failing_at(2), eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=4
    )
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    assert checkpoints(ours) == [4]


class Broken(ostinato.TrainerCallback):
    def __init__(self, event: str) -> None:
        def fail(args, state, control, **kwargs):
            if state.global_step >= 2:
                raise ZeroDivisionError(event)

        setattr(self, event, fail)


@pytest.mark.parametrize(
    "event", ["on_step_begin", "on_pre_optimizer_step", "on_step_end", "on_log", "on_evaluate", "on_prediction_step"]
)
def test_error_in_a_callback_leaves_no_trace(ours: Api, event: str) -> None:
    model = tiny.regression()
    trainer = ours.trainer(
        model,
        ours.args(per_device_train_batch_size=4, max_steps=4, bf16=True, eval_strategy="steps", eval_steps=2),
        train_dataset=ROWS,
        eval_dataset=ROWS[:4],
        callbacks=[Broken(event)],
    )
    with pytest.raises(ZeroDivisionError, match=event):
        trainer.train()
    assert "forward" not in vars(model)
    assert trainer.is_in_train is False
    assert model.inner.weight.dtype is torch.float32
    assert torch.is_grad_enabled()


def test_error_in_a_callback_keeps_earlier_checkpoints_whole(ours: Api) -> None:
    trainer = trainer_with(ours, None, save_strategy="steps", save_steps=2, metric_for_best_model=None)
    trainer.add_callback(Broken("on_save"))
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    verify(ours.output_dir / "checkpoint-2")


def test_training_again_after_an_error(ours: Api) -> None:
    """The embeddings' noise and the small numbers are gone, and a second `train()` works."""
    broken = Broken("on_step_end")
    trainer = ours.trainer(
        tiny.regression(), ours.args(max_steps=3, bf16=True), train_dataset=ROWS, callbacks=[broken]
    )
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    trainer.remove_callback(broken)
    assert trainer.train().global_step == 3
