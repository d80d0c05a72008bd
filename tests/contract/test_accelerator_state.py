"""`trainer.accelerator.save_state` and `load_state`: what is trained comes back, as with accelerate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato.core.errors import CheckpointError
from tests.support import tiny
from tests.support.apis import Api

pytest.importorskip("accelerate")


class Counter:
    """An object of a script's own."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "sums": torch.ones(2)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.count = state_dict["count"]


def train(api: Api, steps: int) -> Any:
    args = api.args(max_steps=steps, learning_rate=0.1, lr_scheduler_type="constant")
    trainer = api.trainer(tiny.regression(), args, train_dataset=tiny.regression_rows())
    trainer.train()
    return trainer


def read(trainer: Any) -> list[Any]:
    """Return weights, the optimizer's averages, the schedule's step and what the random streams give next."""
    averages = [one["exp_avg"].tolist() for one in trainer.optimizer.state_dict()["state"].values()]
    weights = [one.tolist() for one in trainer.model.parameters()]
    return [weights, averages, trainer.lr_scheduler.last_epoch]


def test_what_is_trained_comes_back(api: Api) -> None:
    trainer, counter, directory = train(api, 3), Counter(5), api.output_dir / "state"
    trainer.accelerator.register_for_checkpointing(counter)
    trainer.accelerator.save_state(str(directory))
    before, draws = read(trainer), torch.rand(3).tolist()
    counter.count = 0
    trainer.args.max_steps = 5
    trainer.train()
    assert read(trainer)[0] != before[0]
    trainer.accelerator.load_state(str(directory))
    assert torch.rand(3).tolist() == draws
    assert read(trainer)[:2] == before[:2] and counter.count == 5


def test_hooks_decide_what_is_saved_and_loaded(api: Api) -> None:
    trainer, seen = train(api, 1), []

    def take(models: list[Any], weights: list[Any], directory: str) -> None:
        seen.append((len(models), len(weights.pop())))
        Path(directory, "own.txt").write_text("by the hook")

    directory = api.output_dir / "state"
    saving = trainer.accelerator.register_save_state_pre_hook(take)
    loading = trainer.accelerator.register_load_state_pre_hook(lambda models, directory: models.clear())
    trainer.accelerator.save_state(str(directory))
    assert seen == [(1, len(trainer.model.state_dict()))]
    assert (directory / "own.txt").exists() and not (directory / "model.safetensors").exists()
    trainer.accelerator.load_state(str(directory))
    saving.remove()
    loading.remove()
    trainer.accelerator.save_state(str(directory))
    assert len(seen) == 1 and (directory / "model.safetensors").exists()


def test_other_files_of_the_directory_stay(api: Api) -> None:
    trainer, directory = train(api, 1), api.output_dir / "state"
    (directory / "notes").mkdir(parents=True)
    (directory / "notes" / "own.txt").write_text("mine")
    for _ in range(2):
        trainer.accelerator.save_state(str(directory))
        trainer.accelerator.load_state(str(directory))
    assert (directory / "notes" / "own.txt").read_text() == "mine"


def test_what_cannot_be_saved_or_loaded_is_refused(api: Api) -> None:
    trainer = train(api, 1)
    with pytest.raises(ValueError):
        trainer.accelerator.register_for_checkpointing(object())
    with pytest.raises(Exception, match="missing"):
        trainer.accelerator.load_state(str(api.output_dir / "missing"))
    with pytest.raises(TypeError):
        trainer.accelerator.save_state()


def test_a_damaged_state_is_refused(ours: Api) -> None:
    trainer, directory = train(ours, 1), ours.output_dir / "state"
    trainer.accelerator.save_state(str(directory))
    trainer.accelerator.register_for_checkpointing(Counter())
    with pytest.raises(CheckpointError, match="0 registered objects"):
        trainer.accelerator.load_state(str(directory))
    (directory / "model.safetensors").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        trainer.accelerator.load_state(str(directory))
