"""A run that was saved and loaded takes the same steps, bit for bit, as one that never stopped."""

from __future__ import annotations

import copy
import functools
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from ostinato.checkpoint import training_state
from ostinato.checkpoint.training_state import (
    load_loop_state,
    load_random_state,
    load_training_parts,
    save_loop_state,
    save_random_state,
    save_training_parts,
)
from ostinato.core.errors import CheckpointError
from ostinato.core.notices import forget_notices

OPTIMIZERS: dict[str, Any] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, fused=False, foreach=False),
    "adamw foreach": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "adamw amsgrad": lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True, maximize=True),
    "adamw tensor lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1)),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.5, 0.9)),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.1),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.1),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.1),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.1),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.1),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.1),
    "lbfgs": lambda p: torch.optim.LBFGS([q for g in p for q in g["params"]], lr=0.1, max_iter=3),
    "mixed": lambda p: MixedState(p, lr=0.1),
}


class MixedState(torch.optim.Optimizer):
    """Every kind of state that optimizers keep: numbers, None, counters, float32 averages of any weights."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr, "scale": (None, 1e-3), "dtype": torch.bfloat16, "eps": float("inf")})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, rms=0.0, first=None, count=torch.zeros((), dtype=torch.int64))
                    state["average"] = torch.zeros_like(p, dtype=torch.float32)
                    state["inner"] = {"averages": [torch.zeros_like(p, dtype=torch.float64)]}
                    state["mask"] = torch.zeros_like(p, dtype=torch.bool)
                gradient = p.grad.float()
                state["step"] += 1
                state["count"] += 1
                state["average"].mul_(0.9).add_(gradient, alpha=0.1)
                state["inner"]["averages"][0].mul_(0.99).add_(gradient.double(), alpha=0.01)
                state["mask"] |= gradient > 0
                state["rms"] = 0.9 * state["rms"] + 0.1 * gradient.square().mean().item()
                update = state["average"] / (1 + state["rms"]) + state["inner"]["averages"][0] + state["mask"] * 0.01
                p.add_((update / state["count"]).to(p.dtype), alpha=-float(group["lr"]))
        return loss


SCHEDULERS: dict[str, Any] = {
    "none": lambda o: None,
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (step + 1)),
    "partial": lambda o: lr_scheduler.LambdaLR(o, functools.partial(lambda step, by: by**step, by=0.9)),
    "object": lambda o: lr_scheduler.LambdaLR(o, Decay()),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1, threshold=0.5),
    "step": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "multistep": lambda o: lr_scheduler.MultiStepLR(o, [2, 5], 0.5),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.2, total_steps=50),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3, cycle_momentum=False),
    "linear": lambda o: lr_scheduler.LinearLR(o, total_iters=5),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 9, 2.0),
    "sequence": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.1, 3), lr_scheduler.ExponentialLR(o, 0.9)], [4]
    ),
    "chain": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(o, 0.1, 3), lr_scheduler.StepLR(o, 2)]),
}


class Decay:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, step: int) -> float:
        self.calls += 1
        return 1 / (1 + self.calls)


class Run:
    """A model, its optimizer and its schedule."""

    def __init__(
        self, optimizer: Any, scheduler: Any = SCHEDULERS["none"], dtype: torch.dtype = torch.float32
    ) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(12, 4), nn.LayerNorm(4), nn.Linear(4, 1)
        )
        self.model.to(dtype)
        if optimizer is not OPTIMIZERS["lbfgs"]:  # which takes no other layout than the usual one
            self.model.to(memory_format=torch.channels_last)
        decay = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim <= 1]
        self.optimizer = optimizer([{"params": decay, "weight_decay": 0.01}, {"params": others}])
        self.scheduler = scheduler(self.optimizer)
        self.dtype = dtype

    def train(self, first: int, last: int) -> list[float]:
        losses = []
        for step in range(first, last):
            generator = torch.Generator().manual_seed(step)
            batch = torch.randn(5, 2, 3, 3, generator=generator).to(self.dtype)

            def loss_of_batch(batch: torch.Tensor = batch) -> torch.Tensor:
                self.optimizer.zero_grad()
                loss = (self.model(batch).float() - 1).square().mean()
                loss.backward()
                return loss

            loss = self.optimizer.step(loss_of_batch)
            if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau):
                self.scheduler.step(loss.item())
            elif self.scheduler is not None:
                self.scheduler.step()
            losses.append(loss.item())
        return losses

    def save(self, directory: Path) -> dict[str, torch.Tensor]:
        save_training_parts(directory, optimizer=self.optimizer, scheduler=self.scheduler)
        return copy.deepcopy(self.model.state_dict())

    def load(self, directory: Path, weights: dict[str, torch.Tensor]) -> None:
        self.model.load_state_dict(weights)
        load_training_parts(directory, optimizer=self.optimizer, scheduler=self.scheduler)

    def everything(self) -> str:
        """All numbers there are, exactly: repr of floats and bytes of tensors."""

        def exact(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                raw = value.detach().contiguous().reshape(-1).view(torch.uint8) if value.numel() else value
                return str(value.dtype), list(value.shape), bytes(raw.tolist()).hex()
            if isinstance(value, dict):
                return [(repr(key), exact(item)) for key, item in value.items()]
            if isinstance(value, (list, tuple)):
                return type(value).__name__, [exact(item) for item in value]
            return repr(value)

        schedule = {} if self.scheduler is None else self.scheduler.state_dict()
        return json.dumps(exact([self.model.state_dict(), self.optimizer.state_dict(), schedule]))


def check_resume(directory: Path, build: Any) -> None:
    unbroken, stopped, resumed = build(), build(), build()
    expected = unbroken.train(0, 7)
    stopped.train(0, 4)
    weights = stopped.save(directory)
    resumed.load(directory, weights)
    assert resumed.everything() == stopped.everything(), "not what was saved"
    assert resumed.train(4, 7) == expected[4:]
    assert resumed.everything() == unbroken.everything(), "not where the unbroken run is"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_goes_on_bit_for_bit(tmp_path: Path, name: str, dtype: torch.dtype):
    if name == "lbfgs" and dtype != torch.float32:
        pytest.skip("LBFGS computes in float32")
    check_resume(tmp_path, lambda: Run(OPTIMIZERS[name], dtype=dtype))


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")  # SequentialLR calls its own so
@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_schedule_goes_on_bit_for_bit(tmp_path: Path, name: str):
    check_resume(tmp_path, lambda: Run(OPTIMIZERS["sgd momentum"], SCHEDULERS[name]))


def test_before_the_first_step(tmp_path: Path):
    stopped, resumed = Run(OPTIMIZERS["adamw"], SCHEDULERS["cosine"]), Run(OPTIMIZERS["adamw"], SCHEDULERS["cosine"])
    resumed.load(tmp_path, stopped.save(tmp_path))
    assert resumed.everything() == stopped.everything()
    assert resumed.train(0, 3) == stopped.train(0, 3)


def test_the_files_have_the_promised_names(tmp_path: Path):
    run = Run(OPTIMIZERS["adamw"], SCHEDULERS["cosine"])
    run.train(0, 1)
    save_training_parts(tmp_path, optimizer=run.optimizer, scheduler=run.scheduler, scaler=torch.amp.GradScaler("cpu"))
    names = ["optimizer.json", "optimizer.safetensors", "scaler.json", "scheduler.json"]
    assert sorted(os.listdir(tmp_path)) == names
    assert {training_state.OPTIMIZER_NAME, training_state.SCHEDULER_NAME, training_state.SCALER_NAME} <= set(names)
    assert training_state.TRAINER_STATE_NAME == "trainer_state.json"
    assert training_state.TRAINING_ARGS_NAME == "training_args.bin"
    assert training_state.TRAINING_ARGS_JSON_NAME == "training_args.json"


def test_a_schedule_with_tensors(tmp_path: Path):
    check_resume(tmp_path, lambda: Run(OPTIMIZERS["adamw tensor lr"], SCHEDULERS["step"]))
    assert (tmp_path / "scheduler.safetensors").exists()


def test_the_scaler_comes_back(tmp_path: Path):
    run = Run(OPTIMIZERS["sgd"])
    scaler, other = torch.amp.GradScaler("cpu", init_scale=8.0), torch.amp.GradScaler("cpu")
    save_training_parts(tmp_path, optimizer=run.optimizer, scheduler=None, scaler=scaler)
    load_training_parts(tmp_path, optimizer=run.optimizer, scheduler=None, scaler=other)
    assert other.state_dict() == scaler.state_dict()


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    run = Run(OPTIMIZERS["adamw"], SCHEDULERS["cosine"])
    run.train(0, 2)
    run.save(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["optimizer.json", "optimizer.safetensors", "scheduler.json", "scaler.json"])
def test_a_missing_part_is_an_error_and_touches_nothing(saved: Path, name: str):
    if name != "scaler.json":
        (saved / name).unlink()
    run = Run(OPTIMIZERS["adamw"], SCHEDULERS["cosine"])
    before = run.everything()
    with pytest.raises(CheckpointError, match=rf"{name.replace('.', chr(92) + '.')} is missing"):
        load_training_parts(
            saved, optimizer=run.optimizer, scheduler=run.scheduler, scaler=torch.amp.GradScaler("cpu")
        )
    assert run.everything() == before


def test_another_optimizer_or_schedule_is_refused(saved: Path):
    for run, reason in (
        (Run(OPTIMIZERS["sgd"], SCHEDULERS["cosine"]), "AdamW was saved, and this run has SGD"),
        (Run(OPTIMIZERS["adamw"], SCHEDULERS["lambda"]), "CosineAnnealingLR was saved, and this run has LambdaLR"),
    ):
        before = run.everything()
        with pytest.raises(CheckpointError, match=reason):
            load_training_parts(saved, optimizer=run.optimizer, scheduler=run.scheduler)
        assert run.everything() == before


def test_the_optimizer_of_another_model_is_refused(tmp_path: Path):
    def optimizer(*sizes: int) -> torch.optim.Optimizer:
        return torch.optim.AdamW([nn.Parameter(torch.ones(size)) for size in sizes])

    save_training_parts(tmp_path, optimizer=optimizer(2, 3), scheduler=None)
    load_training_parts(tmp_path, optimizer=optimizer(2, 3), scheduler=None)
    for sizes, reason in (((3, 2), r"parameter 0: \[2\] saved, \[3\] now"), ((2,), "2 parameters saved, 1 now")):
        with pytest.raises(CheckpointError, match=reason):
            load_training_parts(tmp_path, optimizer=optimizer(*sizes), scheduler=None)


def test_other_groups_are_refused(tmp_path: Path):
    weights = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    save_training_parts(tmp_path, optimizer=torch.optim.AdamW(weights), scheduler=None)
    grouped = torch.optim.AdamW([{"params": [weight]} for weight in weights])
    with pytest.raises(CheckpointError, match="parameter group"):
        load_training_parts(tmp_path, optimizer=grouped, scheduler=None)


def test_a_part_that_is_not_used_is_named(saved: Path, capsys: pytest.CaptureFixture):
    forget_notices()
    load_training_parts(saved, optimizer=Run(OPTIMIZERS["adamw"]).optimizer, scheduler=None)
    assert "scheduler.json" in capsys.readouterr().err


def test_what_cannot_be_saved_is_named(tmp_path: Path):
    class Holder:
        def __init__(self) -> None:
            self.function = len

        def __call__(self, step: int) -> float:
            return 1.0

    run = Run(OPTIMIZERS["sgd"])
    scheduler = lr_scheduler.LambdaLR(run.optimizer, Holder())
    with pytest.raises(CheckpointError, match=r"scheduler\['state_dict'\]\['lr_lambdas'\]\[0\]\['function'\]"):
        save_training_parts(tmp_path, optimizer=run.optimizer, scheduler=scheduler)
    run.optimizer.state[next(run.model.parameters())]["projector"] = object()
    with pytest.raises(CheckpointError, match=r"optimizer\['state_dict'\]\['state'\]\[0\]\['projector'\]"):
        save_training_parts(tmp_path, optimizer=run.optimizer, scheduler=None)


def test_weights_of_another_precision_take_the_state_converted(tmp_path: Path, capsys: pytest.CaptureFixture):
    forget_notices()
    run = Run(OPTIMIZERS["adamw"], dtype=torch.bfloat16)
    run.train(0, 2)
    save_training_parts(tmp_path, optimizer=run.optimizer, scheduler=None)
    other = Run(OPTIMIZERS["adamw"])
    load_training_parts(tmp_path, optimizer=other.optimizer, scheduler=None)
    other.train(2, 3)
    assert "converted to torch.float32" in capsys.readouterr().err


@pytest.mark.parametrize("content", [{"a": 1}, [1], {"class": "AdamW", "state_dict": 3}, {"class": "AdamW"}])
def test_a_file_of_another_kind_is_refused(saved: Path, content: Any):
    from ostinato.checkpoint.tensors import write_tree

    write_tree(content, saved, "optimizer")
    run = Run(OPTIMIZERS["adamw"], SCHEDULERS["cosine"])
    with pytest.raises(CheckpointError, match=r"optimizer\.json"):
        load_training_parts(saved, optimizer=run.optimizer, scheduler=run.scheduler)


# ------------------------------------------------------------------------------------------------------------- random


def draw() -> list[Any]:
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.normal(), torch.rand(3).tolist()]


def test_random_streams_come_back(tmp_path: Path):
    random.gauss(0, 1), np.random.normal()  # leaves the second number of a pair waiting in each
    save_random_state(tmp_path, rank=3, world_size=4)
    assert sorted(os.listdir(tmp_path)) == ["rng-3.json", "rng-3.safetensors"]
    expected = draw()
    assert draw() != expected
    load_random_state(tmp_path, rank=3, world_size=4)
    assert draw() == expected


def test_saving_random_streams_draws_nothing(tmp_path: Path):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    save_random_state(tmp_path, 0, 1)
    assert torch.equal(torch.rand(3), expected)


def test_missing_streams_and_other_worlds_are_refused(tmp_path: Path):
    save_random_state(tmp_path, rank=0, world_size=2)
    with pytest.raises(CheckpointError, match=r"rng-1\.json is missing"):
        load_random_state(tmp_path, rank=1, world_size=2)
    with pytest.raises(CheckpointError, match="2 processes saved them, and this run has 1"):
        load_random_state(tmp_path, rank=0, world_size=1)


@pytest.mark.parametrize("field", ["python", "numpy", "torch"])
def test_broken_streams_are_refused(tmp_path: Path, field: str):
    from ostinato.checkpoint.tensors import read_tree, write_tree

    save_random_state(tmp_path, 0, 1)
    tree = read_tree(tmp_path, "rng-0")
    for wrong in (None, [1], torch.zeros(3)):
        write_tree({**tree, "streams": {**tree["streams"], field: wrong}}, tmp_path, "rng-0")
        with pytest.raises(CheckpointError, match=r"rng-0\.json"):
            load_random_state(tmp_path, 0, 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without CUDA")
def test_streams_of_devices_that_are_not_here_are_named(tmp_path: Path, capsys: pytest.CaptureFixture):
    from ostinato.checkpoint.tensors import read_tree, write_tree

    forget_notices()
    save_random_state(tmp_path, 0, 1)
    tree = read_tree(tmp_path, "rng-0")
    tree["streams"]["devices"] = {"cuda": [torch.zeros(16, dtype=torch.uint8)]}
    write_tree(tree, tmp_path, "rng-0")
    load_random_state(tmp_path, 0, 1)
    assert "1 CUDA streams were saved, 0 can be restored" in capsys.readouterr().err


def test_streams_that_an_older_version_saved(tmp_path: Path, capsys: pytest.CaptureFixture):
    from ostinato.checkpoint.tensors import read_tree, write_tree

    forget_notices()
    save_random_state(tmp_path, 0, 1)
    expected = torch.rand(3)
    tree = read_tree(tmp_path, "rng-0")
    del tree["streams"]["devices"]
    stream = torch.zeros(16, dtype=torch.uint8)
    write_tree({**tree, "streams": {**tree["streams"], "cuda": [], "mps": None}}, tmp_path, "rng-0")
    load_random_state(tmp_path, 0, 1)
    assert torch.equal(torch.rand(3), expected) and not capsys.readouterr().err
    write_tree({**tree, "streams": {**tree["streams"], "cuda": [stream], "mps": stream}}, tmp_path, "rng-0")
    load_random_state(tmp_path, 0, 1)
    said = capsys.readouterr().err
    assert torch.equal(torch.rand(3), expected) and "1 CUDA streams" in said and "1 MPS streams" in said


# --------------------------------------------------------------------------------------------------------------- loop


def test_the_loop_state_comes_back_exactly(tmp_path: Path):
    state = {"loss": 0.1 + 0.2, "tensor": torch.tensor(1 / 3), "nan": float("inf"), "counts": [1, (2, None)], "n": 3}
    save_loop_state(tmp_path, state)
    loaded = load_loop_state(tmp_path)
    assert torch.equal(loaded.pop("tensor"), state.pop("tensor"))
    assert loaded == state
    with pytest.raises(CheckpointError, match=r"loop\.json is missing"):
        load_loop_state(tmp_path / "elsewhere")
