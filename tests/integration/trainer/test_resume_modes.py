"""`resume_mode`: the same run, the same run for longer, or a new one with its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato import TrainerCallback
from ostinato.checkpoint.atomic import verify
from ostinato.checkpoint.identity import read_run_id
from ostinato.checkpoint.training_state import load_loop_state
from ostinato.core.errors import ConfigError
from tests.support import tiny
from tests.support.apis import Api

BASE: dict[str, Any] = dict(
    per_device_train_batch_size=4, max_steps=8, save_strategy="steps", save_steps=4, learning_rate=1e-2
)


def build(folder: Path, **rest: Any) -> Any:
    api = Api("ostinato", folder)
    api.set_seed(42)
    own = {name: rest.pop(name) for name in ("callbacks", "train_dataset") if name in rest}
    own = {"train_dataset": tiny.regression_rows(), **own}
    return api.trainer(tiny.regression(dropout=0.3), api.args(**{**BASE, **rest}), **own)


def rates(trainer: Any) -> list[float]:
    return [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]


def assert_equal(one: Any, other: Any) -> None:
    theirs = other.model.state_dict()
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, theirs[name]), name


# ---- extend --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [4, 8])
def test_extended_runs_have_the_rates_of_a_run_planned_that_long(at: int, tmp_path: Path, capsys: Any) -> None:
    planned = build(tmp_path / "planned", max_steps=16)
    planned.train()
    build(tmp_path / "out").train()
    own = read_run_id(tmp_path / "out" / "checkpoint-8")
    if at == 4:
        for path in sorted((tmp_path / "out" / "checkpoint-8").iterdir()):
            path.unlink()
        (tmp_path / "out" / "checkpoint-8").rmdir()
    extended = build(tmp_path / "out", max_steps=16)
    capsys.readouterr()
    extended.train(resume_from_checkpoint=True, resume_mode="extend")
    said = capsys.readouterr().err
    assert extended.state.global_step == extended.state.max_steps == 16
    assert rates(extended)[at:] == rates(planned)[at:]
    before = 1e-2 * (1 - at / 8)
    assert f"extending from {tmp_path}/out/checkpoint-{at}: step {at} of 16" in said
    assert (
        f"learning rate of step {at + 1}: {before:.4g} → {rates(planned)[at]:.4g}, as in a run planned for 16" in said
    )
    assert read_run_id(tmp_path / "out" / "checkpoint-16") == own, "it is the same run"


def test_extending_a_schedule_without_an_end_is_the_longer_run(tmp_path: Path, capsys: Any) -> None:
    level = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 3}
    planned = build(tmp_path / "planned", max_steps=13, **level)
    planned.train()
    build(tmp_path / "out", **level).train()
    extended = build(tmp_path / "out", max_steps=13, **level)
    capsys.readouterr()
    extended.train(resume_from_checkpoint=True, resume_mode="extend")
    assert_equal(extended, planned)
    assert "learning rate of step" not in capsys.readouterr().err


def test_an_extended_run_can_be_stopped_and_resumed(tmp_path: Path) -> None:
    build(tmp_path).train()
    extended = build(tmp_path, max_steps=16)
    extended.train(resume_from_checkpoint=True, resume_mode="extend")
    again = build(tmp_path, max_steps=16)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    assert_equal(again, extended)
    assert rates(again) == rates(extended)


def test_more_epochs_extend_a_finished_run(tmp_path: Path) -> None:
    for strategy in ("steps", "epoch"):
        out = tmp_path / strategy
        settings = {"max_steps": -1, "save_strategy": strategy, "save_steps": 6, "lr_scheduler_type": "constant"}
        planned = build(out / "planned", num_train_epochs=3, **settings)
        planned.train()
        build(out, num_train_epochs=2, **settings).train()
        extended = build(out, num_train_epochs=3, **settings)
        extended.train(resume_from_checkpoint=True, resume_mode="extend")
        assert extended.state.epoch == 3 and extended.state.global_step == 18
        assert_equal(extended, planned)


@pytest.mark.parametrize("changes", [{}, {"max_steps": 6}, {"max_steps": -1, "num_train_epochs": 1}])
def test_extending_needs_a_longer_plan(changes: dict[str, Any], tmp_path: Path) -> None:
    build(tmp_path).train()
    with pytest.raises(ConfigError, match="does not become longer") as refusal:
        build(tmp_path, **changes).train(resume_from_checkpoint=True, resume_mode="extend")
    assert "planned for 8 steps" in refusal.value.why and "max_steps above 8" in refusal.value.fix


# ---- fork ----------------------------------------------------------------------------------------------------------


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_fork_is_a_new_run_with_these_weights(tmp_path: Path, capsys: Any) -> None:
    first = build(tmp_path / "a")
    first.train()
    capsys.readouterr()
    fork = build(tmp_path / "b", learning_rate=2e-2, seed=7)
    fork.train(resume_from_checkpoint=str(tmp_path / "a/checkpoint-4"), resume_mode="fork")
    assert (
        f"forked from {tmp_path}/a/checkpoint-4, step 4: its weights; everything else begins anew"
        in capsys.readouterr().err
    )

    fresh = build(tmp_path / "c", learning_rate=2e-2, seed=7)
    fresh._load_from_checkpoint(str(tmp_path / "a/checkpoint-4"))
    fresh.train()
    assert_equal(fork, fresh)
    assert [entry.get("loss") for entry in fork.state.log_history] == [
        entry.get("loss") for entry in fresh.state.log_history
    ]
    assert rates(fork)[0] == 2e-2 and fork.state.global_step == 8 and len(rates(fork)) == 8
    assert fork._run_directory.run_id != first._run_directory.run_id


def test_a_fork_in_the_same_directory_leaves_what_it_came_from(tmp_path: Path) -> None:
    build(tmp_path).train()
    owner, before = read_run_id(tmp_path / "checkpoint-4"), contents(tmp_path / "checkpoint-4")
    fork = build(tmp_path, save_total_limit=1, learning_rate=2e-2)
    fork.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"), resume_mode="fork")
    kept = tmp_path / f"run-{owner}"
    assert contents(kept / "checkpoint-4") == before
    assert sorted(path.name for path in kept.iterdir()) == ["checkpoint-4", "checkpoint-8"]
    for path in (*kept.iterdir(), tmp_path / "checkpoint-8"):
        verify(path)
    told = load_loop_state(tmp_path / "checkpoint-8")["forked_from"]
    assert told == {"checkpoint": "checkpoint-4", "run_id": owner, "step": 4, "optimizer": False}
    assert read_run_id(tmp_path / "checkpoint-8") == fork._run_directory.run_id != owner

    resumed = build(tmp_path, learning_rate=2e-2, max_steps=12)
    resumed.train(resume_from_checkpoint=True)
    assert load_loop_state(tmp_path / "checkpoint-12")["forked_from"] == told, "it stays known"


def test_a_fork_with_its_optimizer_takes_averages_and_not_settings(tmp_path: Path, capsys: Any) -> None:
    build(tmp_path / "a").train()
    seen: dict[str, Any] = {}

    class Look(TrainerCallback):
        def on_train_begin(
            self, args, state, control, optimizer=None, model=None, lr_scheduler=None, **kwargs
        ) -> None:
            seen["averages"] = optimizer.state[model.outer.weight]["exp_avg"].clone()
            seen["group"] = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
            seen["step"] = lr_scheduler.last_epoch

    whole = build(tmp_path / "w", callbacks=[Look()])
    whole.train(resume_from_checkpoint=str(tmp_path / "a/checkpoint-4"))
    averages = seen["averages"]
    capsys.readouterr()
    fork = build(tmp_path / "b", callbacks=[Look()], learning_rate=5e-2, weight_decay=0.3, adam_beta1=0.5)
    fork.train(resume_from_checkpoint=str(tmp_path / "a/checkpoint-4"), resume_mode="fork_with_optimizer")
    assert torch.equal(seen["averages"], averages)
    group = seen["group"]
    assert (group["lr"], group["initial_lr"], group["weight_decay"], group["betas"][0]) == (5e-2, 5e-2, 0.3, 0.5)
    assert seen["step"] == 0 and rates(fork)[0] == 5e-2
    said = capsys.readouterr().err
    assert "weights and the optimizer's averages" in said and "is not used" not in said
    assert fork._run.origin.forked_from["optimizer"] is True


def test_weights_alone_can_be_forked_from(tmp_path: Path) -> None:
    build(tmp_path / "a", save_only_model=True).train()
    fork = build(tmp_path / "b")
    fork.train(resume_from_checkpoint=str(tmp_path / "a/checkpoint-8"), resume_mode="fork")
    assert fork.state.global_step == 8
    with pytest.raises(ValueError, match=r"optimizer\.json"):
        build(tmp_path / "c").train(
            resume_from_checkpoint=str(tmp_path / "a/checkpoint-8"), resume_mode="fork_with_optimizer"
        )


def test_a_damaged_checkpoint_is_not_forked_from(tmp_path: Path) -> None:
    build(tmp_path / "a").train()
    path = tmp_path / "a/checkpoint-8/model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors is altered"):
        build(tmp_path / "b").train(resume_from_checkpoint=str(path.parent), resume_mode="fork")


# ---- words ---------------------------------------------------------------------------------------------------------


def test_modes_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'forkk' is not a valid ResumeMode") as refusal:
        build(tmp_path).train(resume_mode="forkk")
    assert refusal.value.fix == "did you mean 'fork'?"
    for mode in ("extend", "fork", "fork_with_optimizer"):
        with pytest.raises(ConfigError, match=f"resume_mode='{mode}' without a checkpoint"):
            build(tmp_path).train(resume_mode=mode)
    with pytest.raises(TypeError):
        build(tmp_path).train(None, None, None, "fork")
    assert build(tmp_path).train(resume_mode="resume").global_step == 8


def test_a_mode_does_not_outlast_its_call(tmp_path: Path) -> None:
    build(tmp_path / "a").train()
    trainer = build(tmp_path / "b")
    trainer.train(resume_from_checkpoint=str(tmp_path / "a/checkpoint-4"), resume_mode="fork")
    trainer.train(resume_from_checkpoint=str(tmp_path / "a/checkpoint-8"))
    state = json.loads((tmp_path / "a/checkpoint-8/trainer_state.json").read_text())
    assert trainer.state.log_history[: len(state["log_history"])] == state["log_history"]
