"""Everything together: one real checkpoint, all of its parts, and every one of its files damaged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.checkpoint.atomic import atomic_directory, verify
from ostinato.checkpoint.retention import get_last_checkpoint
from ostinato.checkpoint.tensors import write_tensors, write_tree
from ostinato.checkpoint.training_state import (
    load_loop_state,
    load_random_state,
    load_training_parts,
    save_loop_state,
    save_random_state,
    save_training_parts,
)
from ostinato.checkpoint.weights import load_weights, save_model
from ostinato.core.errors import CheckpointError
from ostinato.core.state import TrainerState

FILES = {
    *("model.safetensors", "optimizer.json", "optimizer.safetensors", "scheduler.json", "scaler.json"),
    *("rng-0.json", "rng-0.safetensors", "loop.json", "trainer_state.json"),
}


class Run:
    """A loop with dropout, so that the random streams matter."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.9**step)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        self.state, self.loss_sum = TrainerState(), 0.0

    def train(self, steps: int) -> None:
        for _ in range(steps):
            loss = self.model(torch.randn(6, 4)).square().mean()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.loss_sum += loss.item()
            self.state.global_step += 1

    def parts(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer, "scheduler": self.scheduler, "scaler": self.scaler}

    def save(self, output_dir: Path) -> Path:
        target = output_dir / f"checkpoint-{self.state.global_step}"
        with atomic_directory(target) as scratch:
            save_model(self.model, scratch)
            save_training_parts(scratch, **self.parts())
            save_random_state(scratch, 0, 1)
            save_loop_state(scratch, {"loss_sum": self.loss_sum})
            self.state.save_to_json(scratch / "trainer_state.json")
        return target

    def load(self, path: Path) -> None:
        verify(path)
        load_weights(self.model, path)
        load_training_parts(path, **self.parts())
        self.loss_sum = load_loop_state(path)["loss_sum"]
        self.state = TrainerState.load_from_json(path / "trainer_state.json")
        load_random_state(path, 0, 1)


def test_a_resumed_run_is_the_unbroken_run(tmp_path: Path):
    unbroken, stopped, resumed = Run(), Run(), Run()
    torch.manual_seed(7)
    unbroken.train(9)
    torch.manual_seed(7)
    stopped.train(5)
    stopped.save(tmp_path)
    stopped.train(1)  # lost
    torch.manual_seed(99)
    resumed.load(Path(str(get_last_checkpoint(tmp_path))))
    resumed.train(4)
    assert resumed.loss_sum == unbroken.loss_sum
    assert resumed.state == unbroken.state
    for left, right in zip(resumed.model.parameters(), unbroken.model.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("damage", ["truncate", "empty", "remove", "flip"])
def test_every_damage_to_a_real_checkpoint_is_found_by_name(tmp_path: Path, damage: str):
    run = Run()
    run.train(2)
    path = run.save(tmp_path)
    assert set(os.listdir(path)) == FILES | {"MANIFEST.json"}
    for name in sorted(os.listdir(path)):
        content = (path / name).read_bytes()
        middle = len(content) // 2
        if damage == "remove":
            (path / name).unlink()
        elif damage == "flip":
            (path / name).write_bytes(content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :])
        else:
            (path / name).write_bytes(content[:-2] if damage == "truncate" else b"")
        with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
            verify(path)
        if damage != "flip":  # discovery looks at sizes
            assert get_last_checkpoint(tmp_path) is None
        (path / name).write_bytes(content)
        verify(path)


def test_what_cannot_be_written_is_an_error_of_ours(tmp_path: Path):
    missing = tmp_path / "not there"
    with pytest.raises(CheckpointError, match=r"cannot write .*x\.safetensors"):
        write_tensors(missing / "x.safetensors", {"x": torch.ones(1)})
    with pytest.raises(CheckpointError, match=r"cannot write .*x\.json"):
        write_tree({"x": 1}, missing, "x")
