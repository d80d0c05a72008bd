"""Between two logs the host does not wait for the device: each test that fails prints the lines that do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from ostinato import GradientStatisticsCallback, Trainer, TrainerCallback, TrainingArguments
from ostinato.core.errors import MetricError, NonFiniteError
from ostinato.engine import guarded_step
from ostinato.metrics import metric
from tests.support import tiny
from tests.support.pretend_device import record_waits, set_float64
from tests.support.pretend_device.host_waits import Wait

pytestmark = pytest.mark.usefixtures("pretended")

ROWS_PER_BATCH, STEPS = 4, 8


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Encoder(nn.Module):
    """A small encoder whose loss is divided by the number of targets of the step, as a language model's is."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: Any = None,
    ) -> dict[str, torch.Tensor]:
        hidden = self.embed(input_ids) * attention_mask.unsqueeze(-1)
        logits = self.head(self.layer(hidden))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        return {
            "loss": loss / (labels.numel() if num_items_in_batch is None else num_items_in_batch),
            "logits": logits,
        }


def make_rows(kind: Callable[[], nn.Module], count: int) -> list[dict[str, Any]]:
    random = torch.Generator().manual_seed(1)
    if kind is Mlp:
        return [{"x": torch.randn(6, generator=random), "labels": number % 3} for number in range(count)]
    ids = torch.randint(0, 11, (count, 5), generator=random)
    return [{"input_ids": row, "attention_mask": torch.ones(5), "labels": row} for row in ids]


class InOrder(Trainer):
    """Reads the rows in their order, so that a row is in a step that the test knows."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


class WaitsOfSteps(TrainerCallback):
    """Divides the waits of a run by step. It reads what users' callbacks may read."""

    def __init__(self, waits: list[Wait]) -> None:
        self.waits, self.begins, self.rates = waits, [], []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begins.append(len(self.waits))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])

    def list_waits(self, first: int) -> list[str]:
        """Return the lines that drain the device's queue after the first steps and before the last one."""
        inside = self.waits[self.begins[first] : self.begins[-1]]
        return [f"{wait.kind}: {' < '.join(wait.stack[:4])}" for wait in inside if wait.drains]


def train(
    home: Path,
    kind: Callable[[], nn.Module] = Mlp,
    *,
    rows: Sequence[Any] | None = None,
    trainer_class: type[Trainer] = InOrder,
    accumulation: int = 1,
    steps: int = STEPS,
    callbacks: Sequence[TrainerCallback] = (),
    given: dict[str, Any] | None = None,
    **arguments: Any,
) -> tuple[Trainer, WaitsOfSteps]:
    torch.manual_seed(0)
    options = {"optim": "adamw_torch_fused", "save_strategy": "no", "logging_steps": 100, "learning_rate": 0.01}
    args = TrainingArguments(
        str(home),
        per_device_train_batch_size=ROWS_PER_BATCH,
        per_device_eval_batch_size=ROWS_PER_BATCH,
        gradient_accumulation_steps=accumulation,
        max_steps=steps,
        report_to="none",
        disable_tqdm=True,
        **{**options, **arguments},
    )
    if rows is None:
        rows = make_rows(kind, ROWS_PER_BATCH * accumulation * steps)
    with record_waits() as waits:
        seen = WaitsOfSteps(waits)
        trainer = trainer_class(kind(), args, train_dataset=rows, callbacks=[seen, *callbacks], **(given or {}))
        trainer.train()
    return trainer, seen


def copy_of(trainer: Trainer) -> list[torch.Tensor]:
    """Return weights, the optimizer's state and the schedule's."""
    assert trainer.optimizer is not None
    states = [value for state in trainer.optimizer.state.values() for value in state.values()]
    numbers = torch.tensor([float(trainer.lr_scheduler.last_epoch), *trainer.get_learning_rates()])
    return [one.detach().cpu().clone() for one in (*trainer.model.parameters(), *states, numbers)]


def check_equal(one: Trainer, other: Trainer) -> None:
    for left, right in zip(copy_of(one), copy_of(other), strict=True):
        assert torch.equal(left, right)


# ---------------------------------------------------------------------------------------------------------- every step


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("kind", [Mlp, Encoder])
def test_steps_do_not_wait(tmp_path: Path, kind: type[nn.Module], accumulation: int, precision: str) -> None:
    formats = {"bf16": precision == "bf16", "fp16": precision == "fp16"}
    _, seen = train(tmp_path, kind, accumulation=accumulation, steps=5, **formats)
    assert seen.list_waits(first=1) == []


@pytest.mark.parametrize(("accumulation", "arguments"), [(1, {}), (4, {}), (4, {"bf16": True}), (4, {"fp16": True})])
def test_only_a_model_of_transformers_waits(tmp_path: Path, accumulation: int, arguments: dict[str, Any]) -> None:
    """BERT reads one number of its mask in every forward, and nothing else waits."""
    pytest.importorskip("transformers")
    rows = tiny.classification_rows(ROWS_PER_BATCH * accumulation * 4)
    _, seen = train(tmp_path, tiny.bert, rows=rows, accumulation=accumulation, steps=4, **arguments)
    waits = seen.list_waits(first=1)
    assert len(waits) == 2, "one a step: in its last forward, when no copy of a further batch is under way"
    assert [wait for wait in waits if ": transformers/" not in wait] == []


@pytest.mark.parametrize(("precision", "most"), [("fp32", 1), ("fp16", 3)])
def test_an_optimizer_that_cannot_look_itself_waits(tmp_path: Path, precision: str, most: int) -> None:
    _, seen = train(tmp_path, steps=5, optim="adamw_torch", fp16=precision == "fp16")
    assert 0 < len(seen.list_waits(first=1)) <= 3 * most


class OverridesHooks(InOrder):
    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        assert all(value.device == self.args.device for value in inputs.values())
        return super().compute_loss(model, inputs, *args, **kwargs)

    def _prepare_inputs(self, inputs: Any) -> Any:
        return super()._prepare_inputs({"labels": inputs["labels"], "x": inputs["x"]})


def test_overridden_hooks_do_not_make_steps_wait(tmp_path: Path) -> None:
    overridden, seen = train(tmp_path / "a", trainer_class=OverridesHooks, steps=5)
    assert seen.list_waits(first=1) == []
    check_equal(overridden, train(tmp_path / "b", steps=5)[0])


@pytest.mark.parametrize("pins", [True, False])
def test_what_is_not_pinned_is_copied_as_the_arguments_say(tmp_path: Path, pins: bool) -> None:
    """Memory that is not pinned is copied without a wait only with `non_blocking`."""
    trainers = []
    for number, non_blocking in enumerate((False, True)):
        config = {"non_blocking": non_blocking}
        options = {"dataloader_pin_memory": pins, "accelerator_config": config}
        trainer, seen = train(tmp_path / str(number), steps=5, **options)
        copies = [wait for wait in seen.waits if wait.kind == "copy to device from pageable memory"]
        of_batches = [wait for wait in copies if "batch_transfer" in wait.line]
        assert len(of_batches) == (0 if pins or non_blocking else 5 * 2)
        assert seen.list_waits(first=1) == []
        trainers.append(trainer)
    check_equal(*trainers)


@pytest.mark.parametrize("workers", [0, 1])
def test_workers_read_what_the_process_reads(tmp_path: Path, workers: int) -> None:
    trainer, seen = train(tmp_path / "a", steps=5, dataloader_num_workers=workers)
    assert seen.list_waits(first=1) == []
    check_equal(trainer, train(tmp_path / "b", steps=5, dataloader_pin_memory=False)[0])


def test_a_log_waits_once(tmp_path: Path) -> None:
    _, seen = train(tmp_path, logging_steps=2, steps=8)
    assert len(seen.list_waits(first=2)) == 2, seen.list_waits(first=2)  # after steps 4 and 6


class TwoLosses(InOrder):
    """Names the parts of its loss, and tracks a number, which stay on the device until the next log."""

    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        self.track("first", inputs["x"].mean(), weight=inputs["x"].abs().sum())
        return {"main": loss, "rest": 0.1 * loss}


@pytest.mark.parametrize("most", [512, 4])
def test_a_log_of_named_losses_and_tracked_numbers_waits_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("ostinato.core.logged_numbers.MAX_PENDING", most)
    set_float64(False)  # as on a device that has none
    trainer, seen = train(tmp_path, trainer_class=TwoLosses, logging_steps=3, steps=8, accumulation=2)
    assert len(seen.list_waits(first=3)) == 1, seen.list_waits(first=3)
    logs = [log for log in trainer.state.log_history if "main" in log]
    assert [log["step"] for log in logs] == [3, 6]
    assert all(log["main"] + log["rest"] == pytest.approx(log["loss"]) and "first" in log for log in logs)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_statistics_of_gradients_leave_out_what_a_device_skips(
    tmp_path: Path, wait_always: Callable[[], None], precision: str
) -> None:
    """Their hook makes no step wait, and is called at steps that the optimizer leaves out by itself."""
    rows = spoil(make_rows(Mlp, ROWS_PER_BATCH * STEPS), (3, 4), 1)
    logs = []
    for home in (tmp_path / "late", tmp_path / "early"):
        counted = GradientStatisticsCallback(every=1, by_layer=True)
        options = {"logging_steps": STEPS, "fp16": precision == "fp16", "learning_rate": 1e-8}
        trainer, seen = train(home, rows=rows, callbacks=[counted], **options)
        if not logs:  # what waits is the report of the steps that were left out
            assert [wait for wait in seen.list_waits(first=1) if "guarded_step" in wait] == []
            wait_always()
        logs.append({name: value for name, value in trainer.state.log_history[0].items() if "updates" in name})
    assert logs[0] == logs[1] and 0 < logs[0]["updates_lost"] < 1


# ---------------------------------------------------------------------------------------------------------- evaluation


@pytest.mark.parametrize("with_metrics", [False, True])
def test_evaluation_waits_for_its_last_batch_only(tmp_path: Path, with_metrics: bool) -> None:
    given: dict[str, Any] = {"eval_dataset": make_rows(Mlp, 5 * ROWS_PER_BATCH)}
    if with_metrics:
        given["compute_metrics"] = lambda prediction: {"mean": float(prediction.predictions.mean())}
    trainer, _ = train(tmp_path, steps=2, given=given)
    trainer.evaluate()
    with record_waits() as waits:
        metrics = trainer.evaluate()
    assert len([wait for wait in waits if wait.drains]) <= 1, [wait.stack for wait in waits if wait.drains]
    assert math.isfinite(metrics["eval_loss"])


@pytest.mark.parametrize("names", [["accuracy", "f1", "matthews_correlation"], ["roc_auc"]], ids=str)
def test_streaming_metrics_wait_for_the_last_batch_only(tmp_path: Path, names: list[str]) -> None:
    rows = make_rows(Mlp, 5 * ROWS_PER_BATCH - 1)
    trainer, _ = train(tmp_path, steps=2, given={"eval_dataset": rows, "metrics": names})
    trainer.evaluate()
    with record_waits() as waits:
        found = trainer.evaluate()
    assert len([wait for wait in waits if wait.drains]) <= 1, [wait.stack for wait in waits if wait.drains]
    kept = trainer.predict(rows)
    for name in names:
        assert metric(name)((kept.predictions, kept.label_ids))[name] == found[f"eval_{name}"]


def test_a_function_of_batches_gets_them_on_the_device(tmp_path: Path) -> None:
    """It may write to them: what `predict` keeps is what the model returned."""
    rows, sums = make_rows(Mlp, 5 * ROWS_PER_BATCH - 1), []

    def add_up(prediction: Any, compute_result: bool) -> dict[str, torch.Tensor]:
        sums.append(prediction.predictions.sum() + prediction.label_ids.sum())
        prediction.predictions.zero_()
        return {"sum": torch.stack(sums).sum()} if compute_result else {}

    trainer, _ = train(tmp_path, steps=2, batch_eval_metrics=True, given={"compute_metrics": add_up})
    trainer.evaluate(rows)
    sums.clear()
    with record_waits() as waits:
        found = trainer.evaluate(rows)
    assert len([wait for wait in waits if wait.drains]) <= 2, [wait.stack for wait in waits if wait.drains]
    assert {one.device for one in sums} == {trainer.args.device}
    sums.clear()
    kept = trainer.predict(rows)
    assert (
        found["eval_sum"] == kept.metrics["test_sum"] == pytest.approx(kept.predictions.sum() + kept.label_ids.sum())
    )


@pytest.mark.parametrize("batch", [2, 4])
def test_a_streaming_metric_refuses_a_batch_that_it_gets_late(tmp_path: Path, batch: int) -> None:
    class Judged(InOrder):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
            logits = model.layers(inputs["x"])
            return (logits.sum(), {"loss": None, "logits": logits}) if return_outputs else logits.sum()

    rows = make_rows(Mlp, 5 * ROWS_PER_BATCH)
    rows[batch * ROWS_PER_BATCH]["labels"] = -7
    given = {"eval_dataset": rows, "metrics": ["accuracy"]}
    trainer, _ = train(tmp_path, steps=2, trainer_class=Judged, given=given)
    with pytest.raises(MetricError, match="label -7 is not a class"):
        trainer.evaluate()


def test_kept_predictions_are_those_of_the_model(tmp_path: Path) -> None:
    rows = make_rows(Mlp, 5 * ROWS_PER_BATCH - 1)
    trainer, _ = train(tmp_path, steps=2)
    kept = trainer.predict(rows)
    trainer.model.eval()
    with torch.no_grad():
        logits = trainer.model.layers(torch.stack([row["x"] for row in rows]).to(trainer.args.device)).cpu()
    torch.testing.assert_close(torch.from_numpy(kept.predictions), logits)


# ----------------------------------------------------------------------------------------- numbers that are not finite


def spoil(rows: list[dict[str, Any]], steps: Sequence[int], accumulation: int) -> list[dict[str, Any]]:
    for step in steps:
        rows[(step - 1) * ROWS_PER_BATCH * accumulation]["x"] = torch.full((6,), math.nan)
    return rows


@pytest.fixture
def wait_always(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the guard read its verdict at once, as for an optimizer that cannot look itself."""
    return lambda: monkeypatch.setattr(guarded_step, "find_reason_to_wait", lambda optimizer, schedule: "a test")


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize(
    "arguments", [{}, {"logging_steps": 3}, {"bf16": True}, {"fp16": True}, {"lr_scheduler_type": "cosine"}], ids=str
)
def test_the_late_verdict_changes_nothing(
    tmp_path: Path,
    wait_always: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
    accumulation: int,
    arguments: dict[str, Any],
) -> None:
    rows = spoil(make_rows(Mlp, ROWS_PER_BATCH * accumulation * STEPS), (3, 4, 7), accumulation)
    late, seen = train(tmp_path / "a", rows=rows, accumulation=accumulation, **arguments)
    told = capsys.readouterr().err
    wait_always()
    early, expected = train(tmp_path / "b", rows=rows, accumulation=accumulation, **arguments)
    check_equal(late, early)
    assert seen.rates == expected.rates
    names = ("loss", "grad_norm", "learning_rate", "step")
    logs = [
        [{name: repr(log[name]) for name in names if name in log} for log in trainer.state.log_history]
        for trainer in (late, early)
    ]
    assert logs[0] == logs[1]
    lines = [line for line in told.splitlines() if "was skipped" in line]
    assert lines == [line for line in capsys.readouterr().err.splitlines() if "was skipped" in line]
    assert [line.split("step ")[1][0] for line in lines] == ["3", "4", "7"]


class Turns(Mlp):
    """Uses one part and then the other, so that each has its first gradient in a step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.other, self.calls = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3)), 0

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        logits = (self.layers if self.calls % 2 else self.other)(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.parametrize(("kind", "bad"), [(Turns, (2,)), (Mlp, (1, 2))])
def test_the_first_step_of_a_parameter_is_judged_at_once(
    tmp_path: Path, wait_always: Callable[[], None], kind: type[nn.Module], bad: tuple[int, ...]
) -> None:
    """A fused optimizer that leaves it out has averages of the parameter that nothing was written to."""
    rows = make_rows(Mlp, ROWS_PER_BATCH * 2)
    for step in bad:
        rows[(step - 1) * ROWS_PER_BATCH]["x"] = torch.full((6,), 3e38)  # finite: step 1 may go on after it
    trainer, _ = train(tmp_path / "a", kind, rows=rows, steps=2)
    wait_always()
    expected, _ = train(tmp_path / "b", kind, rows=rows, steps=2)
    check_equal(trainer, expected)
    assert len(trainer.optimizer.state) == (0 if kind is Mlp else 4)


class Divided(nn.Module):
    """Has one layer on the device and one in the host's memory."""

    hf_device_map = {"first": 0, "last": "cpu"}

    def __init__(self, *, on_device: str) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        getattr(self, on_device).to(torch.accelerator.current_accelerator())

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.first(x.to(self.first.weight.device)).to(self.last.weight.device)
        return {"loss": nn.functional.cross_entropy(self.last(hidden), labels.to(hidden.device))}


@pytest.mark.parametrize("on_device", ["first", "last"])
def test_weights_in_the_memory_of_the_host_are_guarded(
    tmp_path: Path, wait_always: Callable[[], None], on_device: str
) -> None:
    """The device's verdict reaches an optimizer step on the CPU too late."""
    rows = spoil(make_rows(Mlp, ROWS_PER_BATCH * STEPS), (3, 4, 7), 1)
    trainer, _ = train(tmp_path / "a", partial(Divided, on_device=on_device), rows=rows)
    wait_always()
    check_equal(trainer, train(tmp_path / "b", partial(Divided, on_device=on_device), rows=rows)[0])
    remarks = " ".join(trainer.plan().remarks)
    assert "some weights are in the host's memory" in remarks


def test_patience_ends_a_run_one_step_late_with_the_weights_before(tmp_path: Path) -> None:
    rows = spoil(make_rows(Mlp, ROWS_PER_BATCH * STEPS), (3, 4), 1)
    before: list[torch.Tensor] = []

    class Keep(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            if state.global_step == 2:
                before.extend(parameter.detach().clone() for parameter in model.parameters())

    made: list[Trainer] = []

    class Kept(InOrder):
        def train(self, *args: Any, **kwargs: Any) -> Any:
            made.append(self)
            return super().train(*args, **kwargs)

    with pytest.raises(NonFiniteError, match=r"step 4.*the first was step 3"):
        train(tmp_path, rows=rows, trainer_class=Kept, callbacks=[Keep()], nonfinite_patience=2)
    assert made[0].state.global_step == 4
    assert all(map(torch.equal, before, made[0].model.parameters()))


def test_a_checkpoint_after_a_bad_step_resumes_bit_for_bit(tmp_path: Path) -> None:
    rows = spoil(make_rows(Mlp, ROWS_PER_BATCH * STEPS), (4, 5), 1)
    whole, _ = train(tmp_path / "a", rows=rows, save_strategy="steps", save_steps=4)
    torch.manual_seed(0)
    resumed = InOrder(Mlp(), whole.args, train_dataset=rows)
    resumed.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-4"))
    check_equal(whole, resumed)


def test_the_last_step_is_settled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = spoil(make_rows(Mlp, ROWS_PER_BATCH * STEPS), (STEPS,), 1)
    trainer, _ = train(tmp_path, rows=rows)
    assert f"step {STEPS}: loss nan" in capsys.readouterr().err
    assert trainer.lr_scheduler.last_epoch == STEPS - 1


# --------------------------------------------------------------------------------------------------------------- saves


def test_saves_in_the_background_are_not_overtaken(tmp_path: Path) -> None:
    """The file has the weights of its step, although the next steps are launched before they are copied."""
    kept: dict[int, dict[str, torch.Tensor]] = {}

    class Keep(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            kept[state.global_step] = {name: one.detach().clone() for name, one in model.named_parameters()}

    train(tmp_path, save_strategy="steps", save_steps=3, callbacks=[Keep()])
    for step in (3, 6):
        saved = load_file(tmp_path / f"checkpoint-{step}" / "model.safetensors")
        assert saved.keys() == kept[step].keys()
        assert all(torch.equal(one.cpu(), saved[name]) for name, one in kept[step].items())
