"""The memory of a process by arithmetic, beside the bytes that real parameters, gradients and optimizers take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato import Trainer, TrainingArguments
from ostinato.cli import main
from ostinato.diagnostics.memory_plan import MemoryPlan, measure_layout
from ostinato.optim.adafactor import Adafactor

OURS = {"lr": 1e-3, "relative_step": False, "scale_parameter": False}
OPTIMIZERS: dict[str, tuple[type, dict[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {}),
    "amsgrad": (torch.optim.AdamW, {"amsgrad": True}),
    "fused": (torch.optim.AdamW, {"fused": True}),
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "adagrad": (torch.optim.Adagrad, {}),
    "rmsprop": (torch.optim.RMSprop, {"centered": True, "momentum": 0.5}),
    "adafactor": (Adafactor, OURS),
    "adafactor with momentum": (Adafactor, {**OURS, "beta1": 0.9}),
}


def build(dtype: torch.dtype = torch.float32) -> nn.Module:
    model = nn.Sequential(nn.Embedding(7, 6), nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 1, bias=False)).to(dtype)
    model[2].requires_grad_(False)
    return model


def count_bytes(tensors: Any) -> int:
    return sum(one.numel() * one.element_size() for one in tensors if isinstance(one, torch.Tensor))


def measure(model: nn.Module, kind: Any, options: Mapping[str, Any], parts: int) -> tuple[int, int, int]:
    """What the first of `parts` processes holds after a step: the bytes of parameters, gradients and states."""
    own = [nn.Parameter(one.detach().chunk(parts)[0].clone(), one.requires_grad) for one in model.parameters()]
    trained = [one for one in own if one.requires_grad]
    for one in trained:
        one.grad = torch.ones_like(one)
    optimizer = kind(trained, **options)
    optimizer.step()
    states = [value for state in optimizer.state.values() for value in state.values()]
    return count_bytes(own), count_bytes(one.grad for one in trained), count_bytes(states)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_is_what_tensors_take(name: str, parts: int, dtype: torch.dtype) -> None:
    model, (kind, options) = build(dtype), OPTIMIZERS[name]
    found = measure_layout(model, kind, options, shard="full", processes=parts, parts=parts)
    assert (found.parameters, found.gradients, found.optimizer) == measure(model, kind, options, parts)


def test_replicas_hold_gradients_twice() -> None:
    """DDP exchanges them in tensors of its own."""
    model = build()
    alone, replica = (
        measure_layout(model, torch.optim.AdamW, {}, shard="none", processes=count, parts=1) for count in (1, 2)
    )
    assert replica.gradients == 2 * alone.gradients
    assert (replica.parameters, replica.optimizer) == (alone.parameters, alone.optimizer)


def test_tied_parameters_count_once() -> None:
    model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 8, bias=False))
    model[1].weight = model[0].weight
    assert measure_layout(model, torch.optim.SGD, {}, shard="none", processes=1, parts=1).parameters == 8 * 4 * 4


def test_states_of_eight_bits() -> None:
    kind = type("AdamW", (), {"__module__": "bitsandbytes.optim.adamw"})
    model = nn.Sequential(nn.Embedding(64, 128), nn.Linear(128, 64))
    small, block = 64 * 2 * 4, 4
    whole = measure_layout(model, kind, {"optim_bits": 8}, shard="none", processes=2, parts=1)
    assert whole.optimizer == 64 * 128 * 2 * 4 + 2 * (128 * 64 + 128 * 64 // 256 * block) + small


def test_an_unknown_optimizer_is_named() -> None:
    kind = type("AdamW", (), {"__module__": "own.optimizers"})
    layout = measure_layout(build(), kind, {}, shard="none", processes=2, parts=1)
    assert layout.optimizer is None
    text = str(MemoryPlan("Net", 2, 1, "AdamW", (layout,)))
    assert "unknown" in text and "more than" in text
    assert "How much state AdamW keeps is not known" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({}, [("none", 1)]), ({"shard": "full"}, [("full", 4)]), ({"shard": "hybrid"}, [("hybrid", 2)])],
)
def test_the_memory_of_a_run_of_several_processes(
    arguments: dict[str, Any], expected: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", **arguments)
    trainer = Trainer(nn.Linear(8, 8), args, train_dataset=[{"x": 1.0}])
    assert trainer.plan().memory is None
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    plan = trainer.plan()
    assert plan.memory is not None
    assert [(one.shard, one.parts) for one in plan.memory.layouts] == expected
    assert "of each of 4 processes on 2 hosts" in str(plan)


SCRIPT = """
import torch
from ostinato import Trainer, TrainingArguments

model = torch.nn.Linear(1000, 100, bias=False)
args = TrainingArguments("out", use_cpu=True, report_to="none")
Trainer(model, args, train_dataset=[{"x": 1.0}]).train()
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    return "train.py"


def test_all_ways_to_divide_a_model(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--format", "json", "--nproc", "2", "--nnodes", "2", script]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["processes"], told["hosts"], told["optimizer"]) == (4, 2, "AdamW")
    sizes = {one["shard"]: (one["parts"], one["parameters"], one["optimizer"]) for one in told["layouts"]}
    assert sizes == {
        "none": (1, 400_000, 800_004),
        "full": (4, 100_000, 200_004),
        "hybrid": (2, 200_000, 400_004),
    }


def test_one_way_to_divide_a_model(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--nproc", "4", "--shard", "full", script]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "shard parameters gradients optimizer total" in lines
    assert "full 100.0 kB 100.0 kB 200.0 kB 400.0 kB divided among all processes" in lines
    assert not any(line.startswith(("none", "hybrid")) for line in lines)


def test_a_way_without_a_number_of_processes(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--shard", "full", script]) == 2
    assert "need --nproc" in capsys.readouterr().err
