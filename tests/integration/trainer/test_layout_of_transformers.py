"""`checkpoint_layout="transformers"`: the files of transformers are there, wherever a model is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests.support import tiny
from tests.support.apis import Api

WITH_A_MODEL = {"model.safetensors", "training_args.bin"}
TO_GO_ON = {"optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"}


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def trained(api: Api, cls: Any = None, **arguments: Any) -> Any:
    trainer = {"cls": cls} if cls is not None else {}
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 2, "checkpoint_layout": "transformers"}
    return api.fit(tiny.regression(), tiny.regression_rows(), trainer=trainer, **{**settings, **arguments})


def test_a_checkpoint(ours: Api) -> None:
    trained(ours)
    assert names_in(ours.output_dir / "checkpoint-2") >= WITH_A_MODEL | TO_GO_ON


def test_a_checkpoint_of_weights_alone(ours: Api) -> None:
    trained(ours, save_only_model=True)
    names = names_in(ours.output_dir / "checkpoint-2")
    assert names >= WITH_A_MODEL
    assert not names & {"optimizer.pt", "scheduler.pt", "rng_state.pth"}


def test_a_model_saved_by_hand(ours: Api) -> None:
    trained(ours, save_strategy="no").save_model(str(ours.output_dir / "final"))
    assert names_in(ours.output_dir / "final") >= WITH_A_MODEL
    arguments = torch.load(ours.output_dir / "final" / "training_args.bin", weights_only=True)
    assert arguments["max_steps"] == 2


def test_an_own_save_that_writes_weights_only(ours: Api) -> None:
    """Arguments are written with the model, so whoever writes the model decides; the rest is written as ever."""

    class Own(ours.Trainer):
        def _save(self, output_dir=None, state_dict=None):
            torch.save(self.model.state_dict(), Path(output_dir) / "weights.pt")

    trained(ours, Own)
    names = names_in(ours.output_dir / "checkpoint-2")
    assert names >= {"weights.pt"} | TO_GO_ON
    assert not names & WITH_A_MODEL


def test_not_in_our_own_layout(ours: Api) -> None:
    trained(ours, checkpoint_layout="ostinato").save_model(str(ours.output_dir / "final"))
    for directory in ("checkpoint-2", "final"):
        assert not names_in(ours.output_dir / directory) & {"training_args.bin", "optimizer.pt"}
