"""A run on a device that is resumed repeats the run that was not stopped, bit for bit, however late the device is."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ostinato import Trainer, default_data_collator
from tests.support.resumed_runs import assert_resumes, make_trainer

pytestmark = pytest.mark.usefixtures("device")

SETTINGS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"bf16": True},
    "fp16 with a scaler": {"fp16": True},
    "accumulation": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
    "workers": {"dataloader_num_workers": 2},
    "evaluation in between": {"eval_strategy": "steps", "eval_steps": 1},
    "an optimizer that is not fused": {"optim": "adamw_torch"},
    "everything": {
        "fp16": True,
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": 4,
        "dataloader_num_workers": 1,
        "eval_strategy": "steps",
        "eval_steps": 2,
    },
}


@pytest.mark.parametrize("name", SETTINGS)
def test_resume(tmp_path: Path, device: torch.device, name: str) -> None:
    whole = assert_resumes(lambda out: make_trainer(out, **SETTINGS[name]), tmp_path, at=(1, 4))
    assert next(whole.model.parameters()).device == device


def add_noise(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A collator that draws from all streams of the host."""
    batch = default_data_collator(rows)
    noise = torch.randn_like(batch["x"]) + random.random() + np.random.rand()
    return {**batch, "x": batch["x"] + 0.1 * noise}


def make_noisy(out: Path, **options: Any) -> Trainer:
    trainer = make_trainer(out, **options)
    trainer.data_collator = add_noise
    return trainer


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("isolate_rng", "pinned", "rehearse"), [*product(*[(False, True)] * 3)])
def test_resume_with_a_random_collator(
    tmp_path: Path, isolate_rng: bool, pinned: bool, rehearse: bool, workers: int
) -> None:
    options = {"isolate_rng": isolate_rng, "dataloader_pin_memory": pinned, "rehearse": rehearse}
    options |= {"dataloader_num_workers": workers, "per_device_train_batch_size": 4, "num_train_epochs": 1}
    assert_resumes(lambda out: make_noisy(out, **options), tmp_path, at=(1, 4))
