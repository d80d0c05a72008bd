"""`verify_resume` finds what a resumed run would not repeat, names it, and leaves no trace."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ostinato
from ostinato.core.errors import ConfigError, NotSupportedError
from ostinato.core.state import ExportableState
from tests.support import tiny
from tests.support.apis import Api


def trainer(folder: Path, model: nn.Module | None = None, data: Any = None, **rest: Any) -> Any:
    api = Api("ostinato", folder)
    api.set_seed(42)
    options = {name: rest.pop(name) for name in ("data_collator", "callbacks", "cls", "eval_dataset") if name in rest}
    arguments = {"per_device_train_batch_size": 4, "num_train_epochs": 3, **rest}
    model = tiny.regression(dropout=0.2) if model is None else model
    return api.trainer(
        model, api.args(**arguments), train_dataset=tiny.regression_rows() if data is None else data, **options
    )


# ---- what repeats --------------------------------------------------------------------------------------------------


class Noisy(tiny.MapDataset):
    def __getitem__(self, index: int) -> dict[str, Any]:
        row = super().__getitem__(index)
        return {**row, "x": [value + random.random() + float(torch.rand(())) + np.random.rand() for value in row["x"]]}


class Remembers(ostinato.TrainerCallback, ExportableState):
    """Changes the weights by a number that is saved."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def on_step_end(self, args, state, control, model=None, **kwargs) -> None:
        self.count += 1
        with torch.no_grad():
            model.outer.bias += 1e-3 * self.count

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"count": self.count}}


REPEATS: dict[str, dict[str, Any]] = {
    "a plain model": {},
    "over the end of an epoch": {"data": tiny.regression_rows(14)},
    "accumulation": {"gradient_accumulation_steps": 2},
    "workers": {"dataloader_num_workers": 2},
    "random rows": {"data": Noisy(tiny.regression_rows())},
    "streams shared": {"isolate_rng": False, "data": Noisy(tiny.regression_rows())},
    "a stream": {"data": tiny.StreamDataset(tiny.regression_rows()), "max_steps": 9},
    "a run shorter than the comparison": {"max_steps": 2},
    "warmup": {"warmup_steps": 5, "lr_scheduler_type": "cosine"},
    "momentum": {"optim": "sgd", "optim_args": "momentum=0.9"},
    "bf16": {"bf16": True},
    "evaluations": {"eval_strategy": "steps", "eval_steps": 2, "eval_dataset": tiny.regression_rows(6)},
    "the best model": {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "eval_dataset": tiny.regression_rows(6),
        "load_best_model_at_end": True,
        "callbacks": [ostinato.EarlyStoppingCallback(5)],
    },
    "a callback with a state": {"callbacks": [Remembers()]},
}


@pytest.mark.parametrize("case", REPEATS)
def test_what_is_resumed_exactly(case: str, tmp_path: Path) -> None:
    report = trainer(tmp_path, **REPEATS[case]).verify_resume()
    assert report.equal, report
    assert report.first_difference is None and report.steps == 3 and report.seconds > 0
    assert str(report).startswith("resuming repeats the run bit for bit: 3 steps")


def test_batch_norm(tmp_path: Path) -> None:
    class Normed(tiny.Regression):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(16)

    assert trainer(tmp_path, tiny.seeded(Normed)).verify_resume(steps=2).equal


# ---- what does not -------------------------------------------------------------------------------------------------


class OwnDropout(tiny.Regression):
    """Draws from a generator that no checkpoint knows."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x, labels=None):
        keep = (torch.rand(x.shape, generator=self.generator) > 0.3).float()
        return super().forward(x * keep, labels)


class OwnNoise(tiny.MapDataset):
    draw = random.Random(0)

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        super().__init__(rows)
        self.draw = random.Random(0)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = super().__getitem__(index)
        return {**row, "x": [value + self.draw.random() for value in row["x"]]}


class Clockwork(tiny.MapDataset):
    """Which row comes depends on when it is asked for."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return super().__getitem__((index + time.perf_counter_ns()) % len(self))


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        self.calls += 1
        batch = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
        return {**batch, "x": batch["x"] * self.calls}


class Forgets(ostinato.TrainerCallback):
    """Changes the weights by a number that is not saved."""

    def __init__(self) -> None:
        self.count = 0

    def on_step_end(self, args, state, control, model=None, **kwargs) -> None:
        self.count += 1
        with torch.no_grad():
            model.outer.bias += 1e-3 * self.count


class NotSaved(tiny.Regression):
    """A parameter that its state_dict does not hold as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.register_state_dict_post_hook(self.rounded)

    @staticmethod
    def rounded(module, state, prefix, metadata) -> None:
        state["outer.bias"] = state["outer.bias"].half().float()


class Restless(ostinato.TrainerCallback, ExportableState):
    """Says that it has a state, and gives another one each time."""

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"now": time.perf_counter_ns()}}


class Heats(ostinato.TrainerCallback):
    """Changes what the optimizer remembers, by a number that is not saved."""

    def __init__(self) -> None:
        self.count = 0

    def on_step_end(self, args, state, control, optimizer=None, model=None, **kwargs) -> None:
        self.count += 1
        optimizer.state[model.outer.bias]["exp_avg_sq"] += 1e-3 * self.count


class Slows(ostinato.TrainerCallback):
    """Changes the schedule by a number that is not saved."""

    def __init__(self) -> None:
        self.count = 0

    def on_step_end(self, args, state, control, lr_scheduler=None, **kwargs) -> None:
        self.count += 1
        lr_scheduler.base_lrs = [0.01 / self.count for _ in lr_scheduler.base_lrs]


class Chaotic(ostinato.Trainer):
    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(*args, **kwargs) * (1 + time.perf_counter_ns() % 997 / 1e4)


class SpoilsStreams(ostinato.Trainer):
    def _load_rng_state(self, checkpoint: str | None) -> None:
        """As if a checkpoint had none."""


DIFFERS: dict[str, tuple[str, Any]] = {
    "a generator of the model's own": ("the loss of step 4 is ", lambda: {"model": tiny.seeded(OwnDropout)}),
    "a generator of the data's own": (
        "the batch of step 4 has other rows or values: x",
        lambda: {"data": OwnNoise(tiny.regression_rows())},
    ),
    "the clock": ("the batch of step 4 ", lambda: {"data": Clockwork(tiny.regression_rows())}),
    "a collator that counts": ("the batch of step 4 ", lambda: {"data_collator": Counting()}),
    "a callback that counts": (
        "the parameter outer.bias is different after step 4",
        lambda: {"callbacks": [Forgets()]},
    ),
    "a state_dict that rounds": (
        "the parameter outer.bias is different right after loading",
        lambda: {"model": tiny.seeded(NotSaved)},
    ),
    "a callback's state": ("the state of the callback Restless", lambda: {"callbacks": [Restless()]}),
    "the optimizer": (
        "the optimizer's exp_avg_sq of outer.bias is different after step 4",
        lambda: {"callbacks": [Heats()]},
    ),
    "the schedule": ("the schedule.base_lrs is different after step 4", lambda: {"callbacks": [Slows()]}),
    "a loss that is never the same": ("the loss of step 4 is ", lambda: {"cls": Chaotic}),
    "streams that are not put back": (
        "the random numbers of step 4 differ: the stream of ",
        lambda: {"cls": SpoilsStreams},
    ),
}


@pytest.mark.parametrize("case", DIFFERS)
def test_the_first_difference_has_a_name(case: str, tmp_path: Path) -> None:
    expected, make = DIFFERS[case]
    report = trainer(tmp_path, **make()).verify_resume()
    assert not report.equal
    assert report.first_difference is not None and report.first_difference.startswith(expected), report
    assert str(report).startswith(f"resuming does not repeat the run: {expected}")


# ---- no trace ------------------------------------------------------------------------------------------------------


class Keeping(ostinato.Trainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.losses: list[float] = []

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        self.losses.append(loss.item())
        return loss


def test_a_run_that_was_verified_first_is_the_run_that_was_not(tmp_path: Path) -> None:
    finals = []
    for verified in (False, True):
        model, forgets, counting = tiny.seeded(OwnDropout), Forgets(), Counting()
        model.calls = 0
        built = trainer(
            tmp_path / str(verified), model, callbacks=[forgets], data_collator=counting, cls=Keeping, max_steps=5
        )
        if verified:
            state, streams = built.state, torch.get_rng_state()
            built.verify_resume()
            assert built.optimizer is None and built.lr_scheduler is None and built._run is None
            assert built.state is state and state.global_step == 0 and state.log_history == []
            assert torch.equal(torch.get_rng_state(), streams)
            assert forgets.count == counting.calls == 0 and built.losses == []
            assert not (tmp_path / "True").exists()
        built.train()
        finals.append((built.model.state_dict(), built.losses, built.args.to_dict()))
    for name, weight in finals[0][0].items():
        assert torch.equal(weight, finals[1][0][name]), name
    assert finals[0][1] == finals[1][1]
    assert {**finals[0][2], "output_dir": ""} == {**finals[1][2], "output_dir": ""}


def test_the_output_directory_is_as_it_was(tmp_path: Path) -> None:
    built = trainer(tmp_path, save_strategy="steps", save_steps=2, max_steps=4)
    built.train()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    weights = {name: value.clone() for name, value in built.model.state_dict().items()}
    optimizer, history = built.optimizer, list(built.state.log_history)
    assert built.verify_resume().equal
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before
    assert built.optimizer is optimizer and built.state.log_history == history
    for name, weight in built.model.state_dict().items():
        assert torch.equal(weight, weights[name]), name


def test_nothing_is_said_and_what_would_be_said_is_said_later(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    built = trainer(tmp_path, optim="adafactor", optim_args="relative_step=true,scale_parameter=true", warmup_steps=2)
    capsys.readouterr()
    assert built.verify_resume().equal
    assert capsys.readouterr() == ("", "")


def test_a_failure_leaves_no_trace_either(tmp_path: Path) -> None:
    class Fails(ostinato.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs) -> None:
            if state.global_step == 4:
                raise RuntimeError("no more")

    built = trainer(tmp_path / "out", callbacks=[Fails()])
    before = built.model.state_dict()["outer.bias"].clone()
    with pytest.raises(RuntimeError, match="no more") as failure:
        built.verify_resume()
    assert not any("goes on from there" in line for line in getattr(failure.value, "__notes__", []))
    assert not (tmp_path / "out").exists()
    assert torch.equal(built.model.state_dict()["outer.bias"], before)
    assert built.args.output_dir == str(tmp_path / "out")


def test_what_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compares nothing"):
        trainer(tmp_path).verify_resume(steps=0)

    class Once(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __init__(self) -> None:
            self.rows = (row for row in tiny.regression_rows())

        def __iter__(self):
            return self.rows

    with pytest.raises(NotSupportedError, match="cannot be rewound"):
        trainer(tmp_path, data=Once(), max_steps=8).verify_resume()

    class Stops(ostinato.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs) -> None:
            control.should_training_stop = True

    with pytest.raises(ConfigError, match="before anything could be compared"):
        trainer(tmp_path, callbacks=[Stops()]).verify_resume()
