"""A run with a schedule-free optimizer: trained with one set of weights, evaluated and saved with their average."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ostinato import Trainer, TrainerCallback
from tests.support.apis import Api
from tests.support.optimizer_packages import require_optimizer
from tests.support.optimizer_runs import Classifier, flatten_weights, make_rows
from tests.support.schedule_free import ScheduleFreeSGD
from tests.support.tiny import seeded

ARGUMENTS: dict[str, Any] = {
    "max_steps": 6,
    "per_device_train_batch_size": 4,
    "lr_scheduler_type": "constant",
    "save_strategy": "steps",
    "save_steps": 2,
    "write_report": False,
}


class Watch(TrainerCallback):
    """Keeps the weights of every step, and those that are in the model while it is evaluated."""

    def __init__(self) -> None:
        self.trained: list[torch.Tensor] = []
        self.averaged: list[torch.Tensor] = []
        self.evaluated: list[torch.Tensor] = []

    def on_step_end(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **kwargs: Any
    ) -> None:
        self.trained.append(flatten_weights(model))
        pairs = [(one, optimizer.state[one]["z"]) for one in model.parameters()]
        share = 1 - 1 / optimizer.param_groups[0]["momentum"]
        self.averaged.append(torch.cat([one.detach().lerp(z, share).flatten() for one, z in pairs]))

    def on_prediction_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.evaluated.append(flatten_weights(model))


def build(ours: Api, **arguments: Any) -> tuple[Trainer, Watch]:
    model, watch = seeded(Classifier), Watch()
    trainer = ours.trainer(
        model,
        ours.args(**{**ARGUMENTS, **arguments}),
        train_dataset=make_rows(),
        eval_dataset=make_rows(4),
        optimizers=(ScheduleFreeSGD(model.parameters(), lr=0.05), None),
        callbacks=[watch],
    )
    return trainer, watch


def read_weights(directory: Path) -> torch.Tensor:
    saved = load_file(directory / "model.safetensors")
    return torch.cat([saved[name].flatten() for name, _ in seeded(Classifier).named_parameters()])


def test_training_steps_are_those_of_the_optimizer_alone(ours: Api) -> None:
    trainer, watch = build(ours, save_strategy="no", max_grad_norm=0)
    trainer.train()
    model = seeded(Classifier)
    optimizer = ScheduleFreeSGD(model.parameters(), lr=0.05)
    optimizer.train()
    batches = [trainer.samples_at(step) for step in range(1, 7)]
    rows = make_rows()
    for rows_of_step, weights in zip(batches, watch.trained, strict=True):
        batch = {key: torch.stack([rows[row][key] for row in rows_of_step]) for key in ("x", "labels")}
        model(**batch)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        assert torch.equal(flatten_weights(model), weights)


def test_evaluations_see_the_average_and_change_nothing(ours: Api) -> None:
    plain, watched = build(ours, save_strategy="no")
    plain.train()
    trainer, watch = build(ours, save_strategy="no", eval_strategy="steps", eval_steps=2)
    trainer.train()
    assert all(map(torch.equal, watched.trained, watch.trained))
    assert all(map(torch.equal, watch.evaluated, watch.averaged[1::2])) and len(watch.evaluated) == 3
    assert not torch.equal(watch.averaged[1], watch.trained[1])


def test_every_directory_holds_the_average(ours: Api) -> None:
    trainer, watch = build(ours)
    trainer.train()
    for step in (2, 4, 6):
        assert torch.equal(read_weights(ours.output_dir / f"checkpoint-{step}"), watch.averaged[step - 1])
    assert torch.equal(flatten_weights(trainer.model), watch.averaged[-1])
    trainer.save_model(str(ours.output_dir / "final"))
    assert torch.equal(read_weights(ours.output_dir / "final"), watch.averaged[-1])


def test_a_save_in_the_middle_of_training_holds_the_average(ours: Api) -> None:
    trainer, watch = build(ours, save_strategy="no")

    class Save(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 3:
                trainer.save_model(str(ours.output_dir / "middle"))

    trainer.add_callback(Save())
    trainer.train()
    assert torch.equal(read_weights(ours.output_dir / "middle"), watch.averaged[2])


def test_training_goes_on_after_an_evaluation_of_the_result(ours: Api) -> None:
    trainer, watch = build(ours, save_strategy="no")
    trainer.train()
    before = flatten_weights(trainer.model)
    trainer.evaluate()
    assert torch.equal(watch.evaluated[-1], before) and torch.equal(flatten_weights(trainer.model), before)
    trainer.train()
    assert len(watch.trained) == 12


def test_a_resumed_run_goes_on_with_the_weights_it_trained(ours: Api, tmp_path: Path) -> None:
    trainer, watch = build(ours, eval_strategy="steps", eval_steps=2)
    trainer.train()
    other, rest = build(Api("ostinato", tmp_path / "other"), eval_strategy="steps", eval_steps=2)
    other.train(resume_from_checkpoint=str(ours.output_dir / "checkpoint-4"))
    assert all(map(torch.equal, watch.trained[4:], rest.trained)) and len(rest.trained) == 2
    assert torch.equal(flatten_weights(trainer.model), flatten_weights(other.model))


def test_a_fork_starts_from_the_average(ours: Api, tmp_path: Path) -> None:
    build(ours)[0].train()
    other, rest = build(Api("ostinato", tmp_path / "other"), save_strategy="no")
    start = read_weights(ours.output_dir / "checkpoint-4")

    class Begin(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            assert torch.equal(flatten_weights(model), start)

    other.add_callback(Begin())
    other.train(resume_from_checkpoint=str(ours.output_dir / "checkpoint-4"), resume_mode="fork_with_optimizer")
    assert len(rest.trained) == 6


def test_the_best_model_is_the_one_that_was_evaluated(ours: Api) -> None:
    trainer, watch = build(
        ours, eval_strategy="steps", eval_steps=2, load_best_model_at_end=True, metric_for_best_model="loss"
    )
    trainer.train()
    best = trainer.state.best_global_step
    assert best is not None
    assert torch.equal(flatten_weights(trainer.model), watch.averaged[best - 1])
    assert trainer.evaluate()["eval_loss"] == trainer.state.best_metric


def test_the_layout_of_transformers_holds_the_average_too(ours: Api) -> None:
    trainer, _ = build(ours, checkpoint_layout="transformers")
    trainer.train()
    saved = torch.load(ours.output_dir / "checkpoint-4" / "optimizer.pt", weights_only=True)
    assert [group["train_mode"] for group in saved["param_groups"]] == [False]


def test_a_warmup_given_as_a_fraction_reaches_the_optimizer(ours: Api) -> None:
    require_optimizer("schedule_free_adamw")
    trainer = ours.fit(seeded(Classifier), make_rows(), optim="schedule_free_adamw", warmup_steps=0.3, max_steps=6)
    assert trainer.optimizer.param_groups[0]["warmup_steps"] == 2


@pytest.mark.parametrize("name", ["schedule_free_adamw", "schedule_free_radam", "schedule_free_sgd"])
def test_the_package_is_switched_in_the_same_way(ours: Api, name: str) -> None:
    require_optimizer(name)
    trainer = ours.fit(
        seeded(Classifier), make_rows(), optim=name, trainer={"eval_dataset": make_rows(4)}, **ARGUMENTS
    )
    assert all(not group["train_mode"] for group in trainer.optimizer.param_groups)
    assert torch.equal(read_weights(ours.output_dir / "checkpoint-6"), flatten_weights(trainer.model))
