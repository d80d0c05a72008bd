"""Every optimizer resumes bit for bit from a checkpoint that holds tensors and plain values only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato import Trainer, TrainerCallback, TrainingArguments
from ostinato.core.choices import OptimizerNames
from tests.support.apis import QUIET
from tests.support.optimizer_packages import NEEDS_CUDA, WARNINGS, require_optimizer
from tests.support.optimizer_runs import Classifier, flatten_weights, let_run_on_cpu, list_options, make_rows
from tests.support.tiny import seeded

pytestmark = WARNINGS

ARGUMENTS: dict[str, Any] = {
    **QUIET,
    "per_device_train_batch_size": 4,
    "max_steps": 7,
    "save_steps": 4,
    "logging_steps": 1,
    "learning_rate": 1e-2,
    "weight_decay": 0.01,
    "warmup_steps": 2,
    "write_report": False,
}


class Keep(TrainerCallback):
    def __init__(self) -> None:
        self.weights: list[torch.Tensor] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.weights.append(flatten_weights(model))


def train(out: Path, name: str, checkpoint: Path | None = None, **arguments: Any) -> tuple[Trainer, Keep]:
    keep = Keep()
    args = TrainingArguments(str(out), **{**ARGUMENTS, "optim": name, **list_options(name), **arguments})
    trainer = Trainer(
        seeded(Classifier, seed=int(checkpoint is not None)), args, train_dataset=make_rows(), callbacks=[keep]
    )
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return trainer, keep


def check_resume(tmp_path: Path, name: str, **arguments: Any) -> None:
    whole, kept = train(tmp_path / "whole", name, **arguments)
    resumed, rest = train(tmp_path / "resumed", name, tmp_path / "whole" / "checkpoint-4", **arguments)
    assert len(kept.weights) == 7 and len(rest.weights) == 3
    assert all(map(torch.equal, kept.weights[4:], rest.weights))
    assert torch.equal(flatten_weights(whole.model), flatten_weights(resumed.model))
    assert [log.get("loss") for log in whole.state.log_history] == [
        log.get("loss") for log in resumed.state.log_history
    ]


@pytest.mark.parametrize("name", [name.value for name in OptimizerNames])
def test_a_resumed_run_has_the_weights_of_the_whole_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_optimizer(name)
    if name in NEEDS_CUDA:
        let_run_on_cpu(monkeypatch)
    check_resume(tmp_path, name)


@pytest.mark.parametrize("name", ["adamw_torch_4bit", "adamw_8bit", "galore_adamw", "schedule_free_adamw"])
def test_weights_in_bfloat16_resume_too(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_optimizer(name)
    build = Classifier.__init__

    def build_in_bfloat16(self: Classifier) -> None:
        build(self)
        self.to(torch.bfloat16)

    monkeypatch.setattr(Classifier, "__init__", build_in_bfloat16)
    check_resume(tmp_path, name)


@pytest.mark.parametrize("proj", ["svd", "random"])
def test_both_projections_of_apollo_resume(proj: str, tmp_path: Path) -> None:
    require_optimizer("apollo_adamw")
    check_resume(tmp_path, "apollo_adamw", optim_args=f"rank=4,update_proj_gap=3,proj={proj}")


@pytest.mark.parametrize("proj_type", ["std", "reverse_std", "left", "right", "full"])
def test_every_projection_of_galore_resumes(proj_type: str, tmp_path: Path) -> None:
    require_optimizer("galore_adamw")
    check_resume(tmp_path, "galore_adamw", optim_args=f"rank=4,update_proj_gap=3,proj_type={proj_type}")


@pytest.mark.parametrize("name", ["adamw_8bit", "lion_8bit", "rmsprop_bnb_8bit"])
def test_embeddings_have_states_of_32_bits(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_optimizer(name)
    trainer, _ = train(tmp_path, name)
    states = trainer.optimizer.state
    assert states[trainer.model.embedding.weight]["state1"].dtype == torch.float32
    assert states[trainer.model.attn.weight]["state1"].dtype == torch.uint8


REHEARSED = [
    *("adamw_torch_8bit", "galore_adamw", "galore_adamw_layerwise", "grokadamw", "lomo", "adalomo"),
    "schedule_free_sgd",
]


@pytest.mark.parametrize("name", REHEARSED)
def test_a_rehearsal_leaves_nothing_behind(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains a batch, saves and loads: optimizers with an unusual state must come back from it."""
    require_optimizer(name)
    if name in NEEDS_CUDA:
        let_run_on_cpu(monkeypatch)
    _, plain = train(tmp_path / "plain", name)
    _, rehearsed = train(tmp_path / "rehearsed", name, rehearse=True)
    assert all(map(torch.equal, plain.weights, rehearsed.weights))
    _, resumed = train(tmp_path / "resumed", name, tmp_path / "plain" / "checkpoint-4", rehearse=True)
    assert all(map(torch.equal, plain.weights[4:], resumed.weights))


@pytest.mark.parametrize("name", ["adamw_torch_4bit", "galore_adamw", "grokadamw", "schedule_free_adamw", "lomo"])
def test_verify_resume_agrees(name: str, tmp_path: Path) -> None:
    require_optimizer(name)
    args = TrainingArguments(str(tmp_path), **{**ARGUMENTS, "optim": name, **list_options(name)})
    assert Trainer(seeded(Classifier), args, train_dataset=make_rows()).verify_resume().equal
