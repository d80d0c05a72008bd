"""`rehearse=True` and `trainer.rehearse()`: everything is tried before the first step, and nothing shows it."""

from __future__ import annotations

import copy
import dataclasses
import errno
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import ostinato
from ostinato import Trainer, TrainerCallback
from ostinato.core.errors import CheckpointError, MetricError
from ostinato.core.random import RandomState
from tests.support.quiet_trainer import build_quiet_trainer


class WithBuffer(nn.Module):
    """Everything that a forward can change: dropout draws, batch norm counts."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.drop = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3)
        self.outer = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, Any]:
        logits = self.outer(self.drop(self.norm(self.inner(x)))).squeeze(-1)
        loss = {} if labels is None else {"loss": nn.functional.mse_loss(logits, labels)}
        return {**loss, "logits": logits}


class Rows(Dataset):
    """Counts what is read of it."""

    def __init__(self, count: int = 12) -> None:
        self.rows, self.read = [], []
        for at in range(count):
            drawn = torch.Generator().manual_seed(at)
            self.rows.append({"x": torch.randn(4, generator=drawn), "labels": torch.tensor(float(at % 3))})

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.read.append(index)
        return self.rows[index]


def error_of(prediction: Any) -> dict[str, float]:
    return {"error": float(np.abs(prediction.predictions - prediction.label_ids).mean())}


def build(directory: Path, model: nn.Module | None = None, kind: type[Trainer] = Trainer, **options: Any) -> Trainer:
    given = {
        "train_dataset": Rows(),
        "eval_dataset": Rows(8),
        "compute_metrics": error_of,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 2,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_steps": 2,
        "max_steps": 4,
        "logging_steps": 1,
        "rehearse": True,
        **options,
    }
    torch.manual_seed(0)
    return build_quiet_trainer(directory, model if model is not None else WithBuffer(), cls=kind, **given)


def snapshot(trainer: Trainer) -> dict[str, Any]:
    """Everything that training depends on."""
    return {
        "weights": copy.deepcopy(trainer.model.state_dict()),
        "gradients": [parameter.grad for parameter in trainer.model.parameters()],
        "modes": [module.training for module in trainer.model.modules()],
        "attributes": {name: id(value) for name, value in vars(trainer).items() if name != "_rehearsed"},
        "state": copy.deepcopy(vars(trainer.state)),
        "control": copy.deepcopy(vars(trainer.control)),
        "handler": {name: id(value) for name, value in vars(trainer.callback_handler).items()},
        "scale": trainer.loss_objective.scale,
        "streams": RandomState.capture(),
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, value in before.pop("weights").items():
        assert torch.equal(value, after["weights"][name]), name
    assert before.pop("streams").is_current()
    for name in before:
        assert before[name] == after[name], name


def trained(trainer: Trainer) -> dict[str, Any]:
    trainer.train()
    keep = ("loss", "grad_norm", "eval_loss", "eval_error", "train_loss")
    numbers = [{k: v for k, v in entry.items() if k in keep} for entry in trainer.state.log_history]
    return {"weights": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict(), "log": numbers}


# ---------------------------------------------------------------------------------------------------- no trace


def test_a_rehearsal_of_its_own_leaves_no_trace(tmp_path) -> None:
    trainer = build(tmp_path / "out")
    before = snapshot(trainer)
    result = trainer.rehearse()
    assert_same(before, snapshot(trainer))
    assert not (tmp_path / "out").exists()
    assert result.train_seconds and result.eval_seconds and result.save_seconds and result.load_seconds
    assert result.checkpoint_bytes and result.checkpoint_bytes > 1000 and not result.left_out


@pytest.mark.parametrize("sharing", [False, True], ids=["own streams", "shared streams"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_training_does_not_notice(tmp_path, sharing: bool, accumulation: int) -> None:
    settings = {"isolate_rng": not sharing, "gradient_accumulation_steps": accumulation}
    with_it = trained(build(tmp_path / "a", **settings))
    without = trained(build(tmp_path / "b", rehearse=False, compute_metrics=error_of, **settings))
    for name, value in without["weights"].items():
        assert torch.equal(value, with_it["weights"][name]), name
    assert str(without["optimizer"]) == str(with_it["optimizer"])
    assert without["log"] == with_it["log"]
    left = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert left == sorted(path.name for path in (tmp_path / "b").iterdir())


def test_it_is_tried_again_in_the_middle_of_a_run(tmp_path) -> None:
    """A resumed run has an optimizer with a state, and streams that wait for their place."""
    whole = trained(build(tmp_path / "whole", rehearse=False))
    build(tmp_path / "cut", max_steps=4, save_steps=2, rehearse=False).train()
    resumed = build(tmp_path / "cut")
    resumed.train(resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-2"))
    for name, value in whole["weights"].items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    assert str(whole["optimizer"]) == str(resumed.optimizer.state_dict())


class Stream(IterableDataset):
    """Another order in every epoch; tells where it stands, and counts what is read of it."""

    def __init__(self, count: int = 22) -> None:
        self.rows, self.epoch, self.at, self.start, self.read = Rows(count).rows, 0, 0, 0, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = state["at"]

    def __iter__(self) -> Any:
        order = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(self.epoch)).tolist()
        self.at, self.start = self.start, 0
        while self.at < len(order):
            self.at += 1
            self.read += 1
            yield self.rows[order[self.at - 1]]


def noisy(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Draws from all three streams."""
    drawn = torch.tensor([random.random(), float(np.random.rand()), 0.0, 0.0]) + torch.rand(4)
    return {"x": torch.stack([row["x"] for row in rows]) + drawn, "labels": torch.stack([r["labels"] for r in rows])}


def going_on(directory: Path, data: Any, checkpoint: Path | None = None, **options: Any) -> dict[str, Any]:
    """A run with random batches, from the start or from a checkpoint: its weights."""
    settings = {"eval_strategy": "no", "max_steps": 9, "save_steps": 1, "write_report": False, **options}
    by_hand = settings.pop("by_hand", None)
    trainer = build(directory, train_dataset=data, compute_metrics=None, data_collator=noisy, **settings)
    if by_hand is not None:
        by_hand(trainer)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return trainer.model.state_dict()


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert not different


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sharing", [False, True], ids=["own streams", "shared streams"])
@pytest.mark.parametrize("kind", [lambda: Rows(22), Stream], ids=["rows", "stream"])
def test_a_resumed_run_does_not_notice(tmp_path, kind: Any, sharing: bool, workers: int) -> None:
    """It repeats the run that was never stopped; at step 6 an epoch ends. A stream is not read again."""
    settings = {"isolate_rng": not sharing, "dataloader_num_workers": workers}
    whole = going_on(tmp_path / "whole", kind(), rehearse=False, **settings)
    for step in (3, 6, 8) if workers == 0 else (3,):
        checkpoint, data, plain = tmp_path / "whole" / f"checkpoint-{step}", kind(), kind()
        resumed = going_on(tmp_path / f"with-{step}", data, checkpoint, **settings)
        without = going_on(tmp_path / f"without-{step}", plain, checkpoint, rehearse=False, **settings)
        assert_equal(resumed, without)
        if not (sharing and workers and isinstance(data, Rows)):  # whose workers draw from streams that nobody saves
            assert_equal(resumed, whole)
        if isinstance(data, Stream):
            assert data.read == plain.read


@pytest.mark.parametrize(
    "look",
    [Trainer.rehearse, lambda trainer: trainer.verify_resume(2), Trainer.explain, Trainer.plan],
    ids=["rehearse", "verify_resume", "explain", "plan"],
)
@pytest.mark.parametrize("kind", [lambda: Rows(22), Stream], ids=["rows", "stream"])
def test_a_resumed_run_does_not_notice_what_was_done_before(tmp_path, kind: Any, look: Any) -> None:
    settings = {"isolate_rng": False, "rehearse": False}
    whole = going_on(tmp_path / "whole", kind(), **settings)
    checkpoint = tmp_path / "whole" / "checkpoint-3"
    assert_equal(whole, going_on(tmp_path / "resumed", kind(), checkpoint, by_hand=look, **settings))


def test_a_resumed_run_keeps_its_place(tmp_path) -> None:
    """Other batches and other workers than before: what the checkpoint says of them is still needed."""
    going_on(tmp_path, Stream(), rehearse=False)
    places = []

    class Places(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            places.append(dataclasses.replace(self.trainer._run.updates.position))

    for rehearse in (False, True):
        told = Places()
        changed = {"per_device_train_batch_size": 2, "rehearse": rehearse, "callbacks": [told]}
        going_on(
            tmp_path / str(rehearse),
            Stream(),
            tmp_path / "checkpoint-3",
            by_hand=lambda trainer, told=told: setattr(told, "trainer", trainer),
            **changed,
        )
    without, with_it = (dataclasses.asdict(dataclasses.replace(place, before_read=None)) for place in places)
    assert str(with_it) == str(without)
    assert with_it["rows_per_batch"] == 4 and with_it["data"] is not None


def test_a_loader_of_ones_own_does_not_notice(tmp_path) -> None:
    """Its order is drawn from a generator of its own."""

    class OwnLoader(Trainer):
        def get_train_dataloader(self) -> Any:
            return self.own

    def weights(rehearse: bool) -> dict[str, Any]:
        trainer = build(tmp_path / str(rehearse), kind=OwnLoader, rehearse=rehearse)
        draws = torch.Generator().manual_seed(5)
        trainer.own = torch.utils.data.DataLoader(Rows().rows, batch_size=4, shuffle=True, generator=draws)
        return trained(trainer)["weights"]

    assert_equal(weights(False), weights(True))


def test_a_metric_function_that_remembers(tmp_path) -> None:
    seen = []

    def remembering(prediction: Any) -> dict[str, float]:
        seen.append(len(prediction.label_ids))
        return {"calls": float(len(seen))}

    trainer = build(tmp_path, compute_metrics=remembering)
    trainer.train()
    assert [entry["eval_calls"] for entry in trainer.state.log_history if "eval_calls" in entry] == [1.0, 2.0]


def test_no_callback_hears_of_it(tmp_path) -> None:
    class Listening(TrainerCallback):
        heard: list[str] = []

        def on_prediction_step(self, *args: Any, **kwargs: Any) -> None:
            self.heard.append("prediction")

        def on_save(self, *args: Any, **kwargs: Any) -> None:
            self.heard.append("save")

        def on_log(self, *args: Any, **kwargs: Any) -> None:
            self.heard.append("log")

    trainer = build(tmp_path, callbacks=[Listening()])
    trainer.rehearse()
    assert Listening.heard == []


class OwnLoop(Trainer):
    """Computes its metrics from what the loop returns, as trainers with post-processing do."""

    seen: list[int] = []
    wants = 1

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        measure, self.compute_metrics = self.compute_metrics, None
        output = super().evaluation_loop(*args, **kwargs)
        self.compute_metrics = measure
        self.seen.append(len(output.predictions))
        if len(output.predictions) < self.wants:
            raise KeyError("an example without features")
        return output._replace(metrics={**output.metrics, "eval_rows": len(output.predictions)})


def test_a_loop_of_ones_own_is_tried_with_the_first_rows(tmp_path) -> None:
    class Listening(TrainerCallback):
        def on_prediction_step(self, *args: Any, **kwargs: Any) -> None:
            raise AssertionError("nobody hears of a rehearsal")

    trainer = build(tmp_path, kind=OwnLoop, callbacks=[Listening()])
    trainer.seen = []
    before = snapshot(trainer)
    trainer.rehearse()
    assert trainer.seen == [4], "two batches of two rows"
    assert_same(before, snapshot(trainer))


def test_a_loop_of_ones_own_that_needs_all_rows_gets_them(tmp_path) -> None:
    trainer = build(tmp_path, kind=OwnLoop)
    trainer.seen, trainer.wants = [], 8
    trainer.rehearse()
    assert trainer.seen == [4, 8]
    trainer.wants = 9
    with pytest.raises(KeyError, match="an example without features"):
        trainer.rehearse()


def test_an_overridden_loop_sees_the_predictions_it_asks_for(tmp_path) -> None:
    trainer = build(tmp_path, kind=OwnLoop, rehearse=False)
    assert trainer.evaluate()["eval_rows"] == 8


def test_a_stream_that_only_goes_forward_is_left_alone(tmp_path) -> None:
    class Once(IterableDataset):
        def __init__(self) -> None:
            self.rows = (row for row in Rows(40).rows)

        def __iter__(self):
            return self.rows

    trainer = build(tmp_path, train_dataset=Once(), eval_strategy="no", compute_metrics=None)
    result = trainer.rehearse()
    assert result.train_seconds is None
    assert "cannot be rewound" in str(result)
    assert len(list(trainer.train_dataset)) == 40


def test_what_it_found_is_one_line(tmp_path, capsys) -> None:
    build(tmp_path).train()
    lines = [line for line in capsys.readouterr().err.splitlines() if "rehearsed" in line]
    assert len(lines) == 1
    assert "a training batch" in lines[0] and "a save of" in lines[0]


# ---------------------------------------------------------------------------------------------------- what it finds


class NoGradient(WithBuffer):
    def forward(self, x, labels=None):
        return {"loss": torch.tensor(1.0), "logits": super().forward(x)["logits"]}


class Vector(WithBuffer):
    def forward(self, x, labels=None):
        outputs = super().forward(x)
        return {"loss": (outputs["logits"] - labels) ** 2, **outputs}


class FailsBackward(WithBuffer):
    def forward(self, x, labels=None):
        outputs = super().forward(x, labels)
        if outputs["logits"].requires_grad:
            outputs["loss"].register_hook(lambda gradient: 1 / 0)
        return outputs


class LoadsOther(WithBuffer):
    def load_state_dict(self, state_dict, *args, **kwargs):
        return super().load_state_dict({k: v + 1 if v.is_floating_point() else v for k, v in state_dict.items()})


class CannotBeSaved(WithBuffer):
    def state_dict(self, *args, **kwargs):
        raise RuntimeError("no state for you")


class Unsavable(torch.optim.SGD):
    def state_dict(self):
        return {**super().state_dict(), "helper": object()}


class OddState(TrainerCallback, ostinato.ExportableState):
    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"helper": object()}}


class ShortLabels(Rows):
    def __getitem__(self, index):
        row = dict(super().__getitem__(index))
        if index == 3:
            row["x"] = row["x"][:2]
        return row


class NoLabels(Rows):
    def __getitem__(self, index):
        row = super().__getitem__(index)
        return {"x": row["x"], "target": row["labels"]}


def no_result(prediction: Any) -> None:
    prediction.predictions.mean()


def raises(prediction: Any) -> dict[str, float]:
    raise KeyError("logits")


def own_optimizer(model: nn.Module) -> tuple[Any, None]:
    return Unsavable(model.parameters(), lr=0.1), None


def full_disk(self: Any, output_dir: str | None = None, state_dict: Any = None) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(output_dir))


BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "a loss without gradient": ("does not depend on any trainable parameter", {"model": NoGradient}),
    "a loss that is no single number": ("the loss is 4 numbers", {"model": Vector}),
    "a backward that fails": ("division by zero", {"model": FailsBackward}),
    "a model that cannot be saved": ("no state for you", {"model": CannotBeSaved}),
    "weights that load as others": ("does not load as it was saved", {"model": LoadsOther}),
    "an optimizer that cannot be saved": ("cannot save optimizer", {"optimizer": own_optimizer}),
    "a callback that cannot be saved": ("OddState.*helper", {"callbacks": [OddState()]}),
    "a metric function that raises": ("logits", {"compute_metrics": raises}),
    "a metric function that returns nothing": ("must return a dict", {"compute_metrics": no_result}),
    "a best metric that nobody computes": (
        "'f1' is not among",
        {"metric_for_best_model": "f1", "load_best_model_at_end": True},
    ),
    "an evaluation row of another shape": ("rows of the evaluation set", {"eval_dataset": ShortLabels(8)}),
    "an evaluation set without labels": ("have no labels", {"eval_dataset": NoLabels(8)}),
    "a training row of another shape": ("rows of the training set", {"train_dataset": ShortLabels(4)}),
    "a disk that is full": ("No space left", {"save": full_disk}),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("alone", [False, True], ids=["train", "rehearse"])
def test_broken_set_ups_fail_before_the_first_step(tmp_path, what: str, alone: bool) -> None:
    says, broken = BROKEN[what][0], dict(BROKEN[what][1])
    model = broken.pop("model", WithBuffer)()
    if "optimizer" in broken:
        broken["optimizers"] = broken.pop("optimizer")(model)
    kind: Any = type("Broken", (Trainer,), {"_save": broken.pop("save")}) if "save" in broken else Trainer
    steps: list[int] = []

    class Counting(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            steps.append(state.global_step)

    callbacks = [*broken.pop("callbacks", []), Counting()]
    trainer = build(tmp_path, model, kind, callbacks=callbacks, **broken)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    with pytest.raises(Exception, match=says):
        trainer.rehearse() if alone else trainer.train()
    assert steps == []
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name])
        assert value.grad is None
    assert not list(tmp_path.glob("checkpoint-*"))
    assert not (tmp_path / ".rehearsal").exists()


def test_what_comes_back_different_is_named(tmp_path) -> None:
    with pytest.raises(CheckpointError, match=r"inner.weight, inner.bias, norm.weight and \d more"):
        build(tmp_path, LoadsOther()).rehearse()


# ------------------------------------------------------------------------------------------- later evaluations


def test_a_metric_that_raises_at_step_10_leaves_the_checkpoint(tmp_path) -> None:
    calls = []

    def fails_late(prediction: Any) -> dict[str, float]:
        calls.append(1)
        if len(calls) == 5:
            raise ZeroDivisionError("no positive rows")
        return {"f1": 0.5}

    trainer = build(tmp_path, compute_metrics=fails_late, max_steps=20, eval_steps=2, save_steps=10, rehearse=False)
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    assert json.loads((tmp_path / "checkpoint-10" / "trainer_state.json").read_text())["global_step"] == 10
    resumed = build(tmp_path, max_steps=20, eval_strategy="no", save_steps=10, rehearse=False)
    resumed.train(resume_from_checkpoint=True)
    whole = trained(build(tmp_path / "whole", max_steps=20, save_steps=10, rehearse=False))
    for name, value in whole["weights"].items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_a_best_metric_that_vanishes_later_leaves_the_checkpoint(tmp_path) -> None:
    calls = []

    def forgets(prediction: Any) -> dict[str, float]:
        calls.append(1)
        return {"f1": 0.5} if len(calls) < 3 else {"recall": 0.5}

    trainer = build(tmp_path, compute_metrics=forgets, max_steps=8, metric_for_best_model="f1", rehearse=False)
    with pytest.raises(MetricError):
        trainer.train()
    assert (tmp_path / "checkpoint-6" / "MANIFEST.json").exists() or (tmp_path / "checkpoint-4").exists()
