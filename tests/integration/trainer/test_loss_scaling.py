"""float16 with a real gradient scaler: gradients that overflow skip a step and lower the scale, and nothing else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import SequentialSampler

import ostinato
from ostinato import Trainer, TrainerCallback
from ostinato.core.errors import NonFiniteError
from ostinato.core.notices import forget_notices, listen_to_notices
from ostinato.strategies.precision import ScaledFloat16
from tests.support.quiet_trainer import build_quiet_trainer
from tests.support.resumed_runs import logs_of

FACTOR = 300.0  # of the loss: its gradients are too large for the first scales
RATE = 1e-2


class Classifier(nn.Module):
    """Its loss is large; a row that begins with 99 makes it NaN."""

    def __init__(self, factor: float = FACTOR) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.inner, self.outer, self.factor = nn.Linear(8, 16), nn.Linear(16, 2), factor

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.outer(torch.relu(self.inner(x)))
        loss = nn.functional.cross_entropy(logits, labels) * self.factor
        return {"loss": loss * math.nan if (x[:, 0] == 99.0).any() else loss, "logits": logits}


class WithoutDerivative(Classifier):
    """A finite loss with a gradient that is NaN at any scale."""

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        outputs = super().forward(x, labels)
        zero = ((self.outer.bias - self.outer.bias) ** 2).sum()
        return {**outputs, "loss": outputs["loss"] + torch.sqrt(zero)}


class Moments(TrainerCallback):
    """Notes the weights, the scale and the rate of the next step, after every step."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.weights: list[list[Tensor]] = []
        self.scales: list[float] = []
        self.rates: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.weights.append([one.detach().clone() for one in self.trainer.model.parameters()])
        self.scales.append(self.trainer.precision.scaler.get_scale())
        self.rates.append(self.trainer.get_learning_rates()[0])


def rows_of(count: int = 56, bad: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    draw = torch.Generator().manual_seed(0)
    rows = [{"x": torch.randn(8, generator=draw), "labels": number % 2} for number in range(count)]
    for number in bad:
        rows[number]["x"][0] = 99.0
    return rows


def build(directory: Path, model: nn.Module, rows: list[dict[str, Any]], **arguments: Any) -> tuple[Trainer, Moments]:
    settings = {
        "per_device_train_batch_size": 4,
        "max_steps": 14,
        "logging_steps": 1,
        "learning_rate": RATE,
        "save_strategy": "no",
        **arguments,
    }
    moments = Moments()
    trainer = build_quiet_trainer(
        directory, model, train_dataset=rows, callbacks=[moments], sampler=SequentialSampler(rows), **settings
    )
    trainer.precision, moments.trainer = ScaledFloat16("cpu"), trainer
    return trainer, moments


def plain_loop(rows: list[dict[str, Any]], optimizer_of: Any, accumulation: int, *, schedule_always: bool) -> Moments:
    """What a user writes with torch alone."""
    model, scaler, noted = Classifier(), torch.amp.GradScaler("cpu"), Moments()
    optimizer = optimizer_of(model.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, (14 - step) / 14))
    noted.losses, noted.norms = [], []
    batches = [rows[at : at + 4] for at in range(0, len(rows), 4)] * accumulation
    for step in range(14):
        loss_sum = torch.zeros(())
        for batch in batches[step * accumulation : (step + 1) * accumulation]:
            x, labels = torch.stack([row["x"] for row in batch]), torch.tensor([row["labels"] for row in batch])
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(x, labels)["loss"]
            loss = loss.float() / accumulation
            scaler.scale(loss).backward()
            loss_sum += loss.detach()
        scaler.unscale_(optimizer)
        noted.norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        scaler.step(optimizer)
        before = scaler.get_scale()
        scaler.update()
        if schedule_always or scaler.get_scale() >= before:
            schedule.step()
        optimizer.zero_grad()
        noted.losses.append(float(loss_sum))
        noted.weights.append([one.detach().clone() for one in model.parameters()])
        noted.scales.append(scaler.get_scale())
        noted.rates.append(optimizer.param_groups[0]["lr"])
    return noted


OPTIMIZERS = {
    "adamw_torch_fused": lambda parameters: torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0, fused=True),
    "adamw_torch": lambda parameters: torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=RATE),
}


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("optim", OPTIMIZERS)
def test_overflows_are_those_of_a_plain_loop(tmp_path: Path, optim: str, accumulation: int) -> None:
    """Weights, scales, rates and logs. The schedule waits for skipped steps, unless the optimizer is fused."""
    rows = rows_of()
    trainer, ours = build(tmp_path, Classifier(), rows, optim=optim, gradient_accumulation_steps=accumulation)
    output = trainer.train()
    plain = plain_loop(rows, OPTIMIZERS[optim], accumulation, schedule_always=optim.endswith("fused"))
    assert ours.scales == plain.scales
    assert 2 < len(set(ours.scales)) < 14, "some steps have to overflow, and some not"
    assert ours.rates == plain.rates
    for mine, theirs in zip(ours.weights, plain.weights, strict=True):
        assert all(map(torch.equal, mine, theirs))
    logs = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
    assert [entry["loss"] for entry in logs] == plain.losses
    assert [str(entry["grad_norm"]) for entry in logs] == list(map(str, plain.norms))
    assert output.training_loss == pytest.approx(sum(plain.losses) / 14, rel=1e-6)


def test_overflows_are_told_twice_and_not_warned_of(tmp_path: Path) -> None:
    forget_notices()
    said: list[tuple[str, str]] = []
    with listen_to_notices(lambda kind, text: said.append((kind, text))):
        build(tmp_path, Classifier(), rows_of())[0].train()
    assert [kind for kind, text in said if "overflow" in text] == ["notice", "notice"]
    first, last = (text for _, text in said if "overflow" in text)
    assert first.startswith("step 1:")
    assert "7 of 14 updates" in last
    assert not [text for kind, text in said if kind == "warning"]


def test_overflows_do_not_try_the_patience(tmp_path: Path) -> None:
    trainer, moments = build(tmp_path, Classifier(), rows_of(), nonfinite_patience=0)
    trainer.train()
    assert moments.scales[-1] == 512.0
    assert trainer._run.guard.refused == 0


def test_a_loss_that_is_not_finite_is_named_and_lowers_the_scale(tmp_path: Path, capsys) -> None:
    """Step 12 of the plain run took place at a scale of 512; with a NaN in its rows it is skipped."""
    trainer, moments = build(tmp_path, Classifier(), rows_of(bad=(45,)), optim="adamw_torch")
    output = trainer.train()
    assert "step 12: loss nan" in (said := capsys.readouterr().err)
    assert "rows 44, 45, 46, 47" in said
    assert moments.scales[11] == moments.scales[10] / 2
    assert all(map(torch.equal, moments.weights[10], moments.weights[11]))
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert [number for number, loss in enumerate(logged, 1) if math.isnan(loss)] == [12]
    assert math.isfinite(output.training_loss)


def test_losses_that_are_not_finite_try_the_patience(tmp_path: Path) -> None:
    """Though the scale could still fall."""
    trainer, _ = build(tmp_path, Classifier(), rows_of(bad=tuple(range(8, 56))), nonfinite_patience=3)
    with pytest.raises(NonFiniteError, match=r"3 step\(s\) in a row were not finite, the first was step 3"):
        trainer.train()


def test_gradients_that_no_scale_helps_try_the_patience(tmp_path: Path) -> None:
    trainer, moments = build(tmp_path, WithoutDerivative(), rows_of(), nonfinite_patience=3)
    trainer.precision.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-12)
    with pytest.raises(NonFiniteError, match=r"3 step\(s\) in a row were not finite, the first was step 3"):
        trainer.train()
    assert moments.scales == [2.0**-13, 2.0**-14, 2.0**-15, 2.0**-16]


def test_a_scale_below_one_is_found(tmp_path: Path) -> None:
    trainer, moments = build(tmp_path, Classifier(factor=1e6), rows_of(), max_steps=24, nonfinite_patience=0)
    trainer.train()
    assert moments.scales[-1] < 1
    assert not torch.equal(moments.weights[0][0], moments.weights[-1][0])


def in_text(trainer: Trainer) -> list[str]:
    """Its logs; NaN is not equal to itself."""
    return [str(sorted(entry.items())) for entry in logs_of(trainer)]


@pytest.mark.parametrize("step", [3, 8], ids=["among skipped steps", "after them"])
def test_resuming_after_overflows_is_exact(tmp_path: Path, step: int) -> None:
    """And nothing is said of a scaler that is not used."""
    saving = {"save_strategy": "steps", "save_steps": step, "max_steps": 10, "gradient_accumulation_steps": 2}
    whole, noted = build(tmp_path / "whole", Classifier(), rows_of(), **saving)
    whole.train()
    resumed, again = build(tmp_path / "resumed", Classifier(), rows_of(), **saving)
    said: list[str] = []
    with listen_to_notices(lambda kind, text: said.append(text)):
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
    assert again.scales == noted.scales[step:]
    assert again.rates == noted.rates[step:]
    assert all(map(torch.equal, again.weights[-1], noted.weights[-1]))
    assert in_text(resumed) == in_text(whole)
    assert resumed._run.guard.overflows == whole._run.guard.overflows > 3
    assert not [text for text in said if "scaler" in text or text.startswith("step")]


def test_an_fp16_run_goes_on_from_one_without_a_scale(tmp_path: Path, capsys) -> None:
    first, _ = build(tmp_path, Classifier(factor=1.0), rows_of(), save_strategy="steps", save_steps=7)
    first.precision = ostinato.strategies.precision.FullPrecision()
    first.remove_callback(Moments)
    first.train()
    capsys.readouterr()
    resumed, moments = build(tmp_path, Classifier(factor=1.0), rows_of(), save_strategy="steps", save_steps=7)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-7"))
    assert "the gradient scale starts at 65536" in capsys.readouterr().err
    assert moments.scales == [65536.0] * 7


def test_a_run_without_a_scale_goes_on_from_an_fp16_one(tmp_path: Path, capsys) -> None:
    build(tmp_path, Classifier(factor=1.0), rows_of(), save_strategy="steps", save_steps=7)[0].train()
    resumed, _ = build(tmp_path, Classifier(factor=1.0), rows_of())
    resumed.precision = ostinato.strategies.precision.FullPrecision()
    resumed.remove_callback(Moments)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-7"))
    assert "scaler.json of" in capsys.readouterr().err
