"""The moving average of the weights: what it is, who gets to see it, and that training does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ostinato import EMACallback, TrainerCallback
from ostinato.core.errors import CheckpointError, ConfigError
from tests.support.resumed_runs import Net, assert_resumes, assert_same_weights, logs_of, make_trainer, weights_of


class Trail(TrainerCallback):
    """The weights after every step, and those that evaluations saw."""

    def __init__(self) -> None:
        self.trained, self.evaluated = [], []

    def on_step_end(self, args, state, control, model=None, **kwargs) -> None:
        self.trained.append(weights_of(model))

    def on_prediction_step(self, args, state, control, model=None, **kwargs) -> None:
        self.evaluated.append(weights_of(model))


def by_hand(first: dict, trail: list[dict], decay: float, *, warm_up: bool) -> dict:
    average = {name: tensor.clone() for name, tensor in first.items()}
    for n, weights in enumerate(trail, start=1):
        keep = min(decay, (1 + n) / (10 + n)) if warm_up else decay
        for name in average:
            average[name] = torch.lerp(average[name], weights[name], 1 - keep)
    return average


@pytest.mark.parametrize("warm_up", [True, False])
def test_the_average_is_the_one_computed_by_hand(tmp_path: Path, warm_up: bool) -> None:
    trail = Trail()
    trainer = make_trainer(tmp_path, [EMACallback(0.8, warm_up=warm_up), trail])
    first = weights_of(trainer.model)
    trainer.train()
    expected = by_hand(first, trail.trained, 0.8, warm_up=warm_up)
    for name, tensor in trainer.model.state_dict().items():
        torch.testing.assert_close(tensor, expected[name])
        assert not torch.equal(tensor, trail.trained[-1][name])


def test_training_is_not_touched(tmp_path: Path) -> None:
    """The steps of a run with averages and evaluations are those of a run without, bit for bit."""
    alone, watched = Trail(), Trail()
    make_trainer(tmp_path / "a", [alone]).train()
    make_trainer(tmp_path / "b", [EMACallback(0.5), watched], eval_strategy="steps", eval_steps=1).train()
    for here, there in zip(alone.trained, watched.trained, strict=True):
        assert all(torch.equal(here[name], there[name]) for name in here)


def test_evaluations_see_the_average(tmp_path: Path) -> None:
    trail = Trail()
    trainer = make_trainer(tmp_path, [EMACallback(0.8), trail], eval_strategy="steps", eval_steps=6)
    first = weights_of(trainer.model)
    trainer.train()
    expected = by_hand(first, trail.trained, 0.8, warm_up=True)
    torch.testing.assert_close(trail.evaluated[-1], expected)
    logged = next(entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry)
    assert trainer.evaluate()["eval_loss"] == logged


def test_evaluations_on_request_see_what_is_trained(tmp_path: Path) -> None:
    trail = Trail()
    ema = EMACallback(0.8, evaluate=False, load_at_end=False)
    trainer = make_trainer(tmp_path, [ema, trail], eval_strategy="steps", eval_steps=6)
    trainer.train()
    assert all(torch.equal(trail.evaluated[-1][name], trail.trained[-1][name]) for name in trail.trained[-1])
    assert all(torch.equal(trainer.model.state_dict()[name], trail.trained[-1][name]) for name in trail.trained[-1])
    with ema.averaged(trainer.model):
        assert not torch.equal(trainer.model.head.weight, trail.trained[-1]["head.weight"])
    assert torch.equal(trainer.model.head.weight, trail.trained[-1]["head.weight"])


@pytest.mark.parametrize("load_at_end", [True, False])
def test_a_resumed_run_is_the_same(tmp_path: Path, load_at_end: bool) -> None:
    made = []

    def make(out: Path):
        made.append(EMACallback(0.8, load_at_end=load_at_end))
        return make_trainer(out, [made[-1]], eval_strategy="steps", eval_steps=2)

    assert_resumes(make, tmp_path)
    for one in made[1:]:
        assert one.updates == 6
        assert one.averages.keys() == made[0].averages.keys()
        assert all(torch.equal(one.averages[name], made[0].averages[name]) for name in one.averages)


def test_a_checkpoint_holds_both(tmp_path: Path) -> None:
    trail = Trail()
    trainer = make_trainer(tmp_path, [EMACallback(0.8), trail])
    trainer.train()
    weights = load_file(tmp_path / "checkpoint-6" / "model.safetensors")
    assert all(torch.equal(weights[name], trail.trained[-1][name]) for name in weights)
    assert (tmp_path / "checkpoint-6" / "callbacks.safetensors").is_file()
    trainer.save_model(str(tmp_path / "saved"))
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert all(torch.equal(saved[name], trainer.model.state_dict()[name]) for name in saved)
    assert not torch.equal(saved["head.weight"], weights["head.weight"])


@pytest.mark.parametrize("options", [{}, {"save_steps": 6}, {"save_only_model": True}])
def test_the_best_model_is_the_average_that_was_evaluated(tmp_path: Path, options: dict) -> None:
    """Whether it lies in a checkpoint or, as no checkpoint was due, apart."""
    trail = Trail()
    trainer = make_trainer(
        tmp_path,
        [EMACallback(0.8), trail],
        eval_strategy="steps",
        eval_steps=1,
        load_best_model_at_end=True,
        learning_rate=0.5,
        **options,
    )
    trainer.train()
    assert trainer.state.best_global_step not in (None, 6), "the case is about a best that is not the last"
    seen = trail.evaluated[trainer.state.best_global_step - 1]
    assert all(torch.equal(trainer.model.state_dict()[name], seen[name]) for name in seen)
    assert trainer.evaluate()["eval_loss"] == trainer.state.best_metric


def test_half_precision_is_averaged_in_float32(tmp_path: Path) -> None:
    ema = EMACallback(0.999, load_at_end=False)
    make_trainer(tmp_path, [ema], model=Net(torch.bfloat16)).train()
    assert {average.dtype for average in ema.averages.values()} == {torch.float32}
    assert_resumes(
        lambda out: make_trainer(out, [EMACallback(0.9)], model=Net(torch.bfloat16)), tmp_path / "again", [3]
    )


def test_start(tmp_path: Path) -> None:
    """Up to then the average is the weights themselves."""
    trail, ema = Trail(), EMACallback(0.5, start=6, load_at_end=False)
    make_trainer(tmp_path, [ema, trail]).train()
    assert all(torch.equal(average, trail.trained[-1][name]) for name, average in ema.averages.items())


def test_a_failing_evaluation_gives_the_weights_back(tmp_path: Path) -> None:
    class Fails(TrainerCallback):
        def on_prediction_step(self, *args, **kwargs) -> None:
            raise RuntimeError("no")

    trail = Trail()
    trainer = make_trainer(tmp_path, [EMACallback(0.5), trail, Fails()], eval_strategy="steps", eval_steps=2)
    with pytest.raises(RuntimeError, match="no"):
        trainer.train()
    assert all(torch.equal(tensor, trail.trained[-1][name]) for name, tensor in trainer.model.state_dict().items())


def test_a_checkpoint_without_averages_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_trainer(tmp_path).train()
    make_trainer(tmp_path, [EMACallback()]).train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert "EMACallback starts from the beginning: checkpoint-3 has no state for it" in capsys.readouterr().err


def test_averages_of_another_model_are_refused(tmp_path: Path) -> None:
    ema = EMACallback()
    ema.load_tensor_state({"updates": 1, "averages": {"other": torch.zeros(2)}})
    with pytest.raises(CheckpointError, match="of other parameters"):
        make_trainer(tmp_path, [ema]).train()


@pytest.mark.parametrize("decay", [1.5, -0.1, "0.9", None])
def test_decay_is_a_share(decay: Any) -> None:
    with pytest.raises(ConfigError, match=f"decay={decay!r}. is not an average"):
        EMACallback(decay)


def test_without_averages_nothing_is_written_and_nothing_changes(tmp_path: Path) -> None:
    one = make_trainer(tmp_path / "a")
    one.train()
    other = make_trainer(tmp_path / "b", [EMACallback(load_at_end=False)])
    other.train()
    assert not (tmp_path / "a" / "checkpoint-6" / "callbacks.json").exists()
    assert_same_weights(one.model, other.model)
    assert logs_of(one) == logs_of(other)


def test_verify_resume_knows_of_averages(tmp_path: Path) -> None:
    assert make_trainer(tmp_path / "a", [EMACallback(0.8)]).verify_resume(2).equal

    class Forgets(EMACallback):
        def load_tensor_state(self, state) -> None:
            super().load_tensor_state({**state, "updates": 0})

    found = make_trainer(tmp_path / "b", [Forgets(0.8)]).verify_resume(2)
    assert not found.equal and "Forgets" in (found.first_difference or "")
