"""Numbers of the user's own in the logs: named losses, tracked numbers, metrics of training batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ostinato
from ostinato.core.errors import ConfigError, MetricError
from ostinato.core.eval_prediction import EvalPrediction
from ostinato.core.logged_numbers import MAX_PENDING, TrackedNumbers, collect_numbers, track
from ostinato.evaluation.metric_spec import parse_metrics
from ostinato.metrics.train_window import MAX_HELD, MetricWindow
from tests.support import tiny
from tests.support.apis import Api


class Net(nn.Module):
    """Two losses, and a number that its forward reports."""

    def __init__(self, *, reports: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.reports, self.seen = nn.Linear(4, 3), reports, []

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        logits = self.a(x)
        if self.reports:
            mean = logits.abs().mean()
            if self.training and torch.is_grad_enabled():
                self.seen.append((float(mean.detach()), len(x)))
            ostinato.track("size", mean, weight=len(x))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def rows(count: int = 22) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(3)
    return [
        {
            "x": torch.randn(4, generator=generator),
            "labels": torch.randint(0, 3, (), generator=generator),
        }
        for _ in range(count)
    ]


def logged(trainer: Any, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


# ---- tracked numbers -----------------------------------------------------------------------------------------------


def test_a_weighted_mean_over_micro_batches_and_steps(ours: Api) -> None:
    """Eleven micro-batches of two rows, three to a step, two steps to a log: the last step and log are uneven."""
    model = Net()
    args = ours.args(
        per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=2, num_train_epochs=2, max_steps=-1
    )
    trainer = ours.trainer(model, args, train_dataset=rows())
    trainer.train()
    micro = (
        model.seen
    )  # 4, 4 | 4, 4 | 4, 2 rows in each epoch; what tries things out has no gradient, or is not training
    assert len(micro) == 12
    expected = []
    for window in (micro[0:4], micro[4:8], micro[8:12]):
        expected.append(sum(value * weight for value, weight in window) / sum(weight for _, weight in window))
    assert logged(trainer, "size") == pytest.approx(expected, rel=1e-12)


def test_reports_change_nothing(ours: Api) -> None:
    def weights(*, reports: bool) -> list[Any]:
        ours.set_seed(1)
        model = Net(reports=reports)
        ours.fit(model, rows(), max_steps=5, eval_strategy="steps", eval_steps=2, trainer={"eval_dataset": rows(6)})
        return [parameter.tolist() for parameter in model.parameters()]

    assert weights(reports=True) == weights(reports=False)


def test_from_a_callback_and_by_name(ours: Api) -> None:
    class Reports(ours.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            trainer.track("step_squared", state.global_step**2)

    args = ours.args(max_steps=4, logging_steps=2)
    trainer = ours.trainer(Net(), args, train_dataset=rows(), callbacks=[Reports()])
    trainer.train()
    # What is reported after a step belongs to the next: its log line comes when the step is over.
    assert logged(trainer, "step_squared") == [2.5, 12.5]


def test_a_tensor_counts_as_it_was_when_it_was_tracked() -> None:
    """A buffer of the model's, say, which the next batch writes to."""
    tracked, running = TrackedNumbers(), torch.tensor(1.0)
    for _ in range(3):
        tracked.add("running", running)
        running += 1
    assert tracked.drain() == {"running": 2.0}


def test_the_sum_is_the_same_whenever_it_is_asked_for() -> None:
    """A checkpoint asks in the middle of a window. Numbers of all kinds, more than may wait to be added up."""
    generator = torch.Generator().manual_seed(0)
    numbers = [torch.randn((), generator=generator) for _ in range(MAX_PENDING + 100)]
    numbers[7], numbers[9] = torch.tensor(3), numbers[9].bfloat16()
    weights = [torch.tensor([2.0]) if place % 3 == 0 else 1 / (place + 1) for place in range(len(numbers))]
    means, total, whole = [], 0.0, 0.0
    for asked_every in (10**6, 7, 1):
        tracked = TrackedNumbers()
        for place, (number, weight) in enumerate(zip(numbers, weights, strict=True)):
            tracked.add("x", number, weight)
            tracked.commit()
            assert len(tracked._pending) < MAX_PENDING
            if place % asked_every == 1:
                tracked.totals()
        means.append(tracked.drain()["x"])
        assert not tracked
    for number, weight in zip(numbers, weights, strict=True):
        total, whole = total + float(number) * float(weight), whole + float(weight)
    assert means == [total / whole] * 3


def test_an_evaluation_has_its_own(ours: Api) -> None:
    args = ours.args(max_steps=2, eval_strategy="steps", eval_steps=1, per_device_eval_batch_size=4)
    trainer = ours.trainer(Net(), args, train_dataset=rows(), eval_dataset=rows(10))
    trainer.train()
    metrics = trainer.evaluate()
    x = torch.stack([row["x"] for row in rows(10)])
    with torch.no_grad():
        expected = float(trainer.model.a(x).abs().mean())
    assert metrics["eval_size"] == pytest.approx(expected, rel=1e-6)
    assert len(logged(trainer, "eval_size")) == 3
    assert len(logged(trainer, "size")) == 2
    assert "test_size" in trainer.predict(rows(4)).metrics


def test_a_step_that_is_not_taken_does_not_count(ours: Api) -> None:
    class Breaks(ours.Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **rest: Any) -> Any:
            self.track("number", float(self.state.global_step + 1))
            loss = super().compute_loss(model, inputs, return_outputs, **rest)
            self.times = getattr(self, "times", 0) + 1
            return loss * float("nan") if self.times == 3 else loss

    args = ours.args(max_steps=4, logging_steps=4, nonfinite_patience=3)
    trainer = ours.trainer(Net(), args, cls=Breaks, train_dataset=rows())
    trainer.train()
    assert logged(trainer, "number") == [(1 + 2 + 4) / 3]


def test_checkpointed_layers_report_once() -> None:
    tracked = TrackedNumbers()

    def layer(x: torch.Tensor) -> torch.Tensor:
        track("calls", 1.0, weight=1)
        return x.sin()

    with collect_numbers(tracked):
        x = torch.ones(3, requires_grad=True)
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert tracked.totals() == {"calls": (1.0, 1.0)}


@pytest.mark.parametrize(
    ("name", "value"), [("loss", 1.0), ("", 1.0), ("kl", torch.ones(2)), ("kl", "high"), ("kl", None)]
)
def test_what_cannot_be_tracked(name: str, value: Any) -> None:
    with collect_numbers(TrackedNumbers()), pytest.raises(ConfigError):
        track(name, value)


def test_outside_of_a_run_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    track("lonely", 1.0)
    assert "track('lonely', ...) has no effect" in capsys.readouterr().err


# ---- named losses --------------------------------------------------------------------------------------------------


class TwoLosses:
    """`compute_loss` in two parts."""

    total = False

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **rest: Any) -> Any:
        outputs = model(inputs["x"], inputs["labels"])
        losses = {"ce": outputs["loss"], "decay": 0.1 * (model.a.weight**2).sum()}
        if self.total:
            losses = {"loss": losses["ce"] + 2 * losses["decay"], **losses}
        return (losses, outputs) if return_outputs else losses


@pytest.mark.parametrize("total", [False, True])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_named_losses_add_up(ours: Api, accumulation: int, total: bool) -> None:
    class Mine(TwoLosses, ours.Trainer):
        pass

    Mine.total = total
    args = ours.args(
        num_train_epochs=2, logging_steps=2, per_device_train_batch_size=4, gradient_accumulation_steps=accumulation,
        eval_strategy="epoch", per_device_eval_batch_size=4,
    )  # fmt: skip
    trainer = ours.trainer(Net(reports=False), args, cls=Mine, train_dataset=rows(), eval_dataset=rows(10))
    trainer.train()
    for prefix in ("", "eval_"):
        loss, ce, decay = (logged(trainer, f"{prefix}{name}") for name in ("loss", "ce", "decay"))
        assert len(loss) == len(ce) == len(decay) > 1
        expected = [one + (2 if total else 1) * other for one, other in zip(ce, decay, strict=True)]
        assert loss == pytest.approx(expected, rel=1e-6)


def test_named_losses_train_as_their_sum(ours: Api) -> None:
    class Parts(TwoLosses, ours.Trainer):
        pass

    class Sum(ours.Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **rest: Any) -> Any:
            outputs = model(inputs["x"], inputs["labels"])
            loss = outputs["loss"] + 0.1 * (model.a.weight**2).sum()
            return (loss, outputs) if return_outputs else loss

    weights = []
    for kind in (Parts, Sum):
        ours.set_seed(1)
        args = ours.args(max_steps=5, gradient_accumulation_steps=2)
        trainer = ours.trainer(Net(reports=False), args, cls=kind, train_dataset=rows())
        trainer.train()
        weights.append([parameter.tolist() for parameter in trainer.model.parameters()])
    assert weights[0] == weights[1]


# ---- metrics of training batches -----------------------------------------------------------------------------------


def test_metrics_of_training_batches(ours: Api) -> None:
    hits: list[tuple[int, int]] = []

    class Watched(Net):
        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            outputs = super().forward(x, labels)
            if self.training and torch.is_grad_enabled():
                hits.append((int((outputs["logits"].argmax(-1) == labels).sum()), len(labels)))
            return outputs

    args = ours.args(num_train_epochs=2, logging_steps=2, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    trainer = ours.trainer(Watched(), args, train_dataset=rows(), train_metrics=["accuracy"])
    trainer.train()
    expected = [sum(h for h, _ in part) / sum(n for _, n in part) for part in (hits[0:4], hits[4:8], hits[8:12])]
    assert logged(trainer, "accuracy") == pytest.approx(expected, rel=1e-12)


def seen(predictions: Any, labels: Any) -> EvalPrediction:
    return EvalPrediction(predictions, labels)


def batches(count: int) -> list[EvalPrediction]:
    """Of tagged tokens: rows of two lengths, some labels that do not count."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for number in range(count):
        length = 5 if number % 4 else 6
        labels = torch.randint(0, 3, (4, length), generator=generator)
        logits = torch.randn(4, length, 3, generator=generator)
        found.append(seen(logits, labels.where(labels != 1, -100)))
    return found


@pytest.mark.parametrize(
    "wanted", [["accuracy"], [("f1", {"average": "macro"})], ["accuracy", "matthews_correlation"]]
)
def test_batches_that_are_measured_together_give_the_same(wanted: list[Any]) -> None:
    one_by_one, together = (MetricWindow(parse_metrics(metrics=wanted).streams, {}) for _ in range(2))
    one_by_one._joins = False
    for _ in range(2):
        for batch in batches(11):
            one_by_one.add(batch)
            together.add(batch)
        assert together._held and not one_by_one._held
        assert together.drain() == one_by_one.drain()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_batches_of_few_numbers_and_of_many_are_joined_without_rounding(dtype: torch.dtype) -> None:
    one_by_one, together = (MetricWindow(parse_metrics(metrics=["accuracy"]).streams, {}) for _ in range(2))
    one_by_one._joins = False
    generator = torch.Generator().manual_seed(2)
    for rows_in_batch in (3, 500, 1, 40, 0, 500, 2):
        labels = torch.randint(0, 3, (rows_in_batch,), generator=generator)
        logits = torch.ones(rows_in_batch, 3, dtype=dtype)  # told apart by the last bit alone
        logits[torch.arange(rows_in_batch), labels] += torch.finfo(dtype).eps
        batch = seen(logits.requires_grad_(), labels)
        one_by_one.add(batch)
        together.add(batch)
        if rows_in_batch == 1:
            assert len(together._held) == 2
    assert together.drain() == one_by_one.drain() == {"accuracy": 1.0}


def test_numbers_of_a_device_wait_and_are_numbers_in_the_end() -> None:
    """Tensors of the host are read at once; these stand for those that something still computes."""
    tracked = TrackedNumbers()
    for number in range(3):
        tracked.add("own", 2.0)
        tracked.commit({"kl": torch.tensor(float(number)), "size": 1.0})
    assert tracked._pending
    found = tracked.drain()
    assert found == {"kl": 1.0, "size": 1.0, "own": 2.0} and {type(one) for one in found.values()} == {float}
    assert list(found) == ["kl", "size", "own"]


def test_metrics_whose_sums_depend_on_the_order_are_measured_batch_by_batch() -> None:
    window = MetricWindow(parse_metrics(metrics=["accuracy", "mse"]).streams, {})
    for number in range(3):
        window.add(seen(torch.ones(4), torch.full((4,), number)))
        assert not window._held


def test_small_batches_wait_and_are_not_touched_by_what_comes_later() -> None:
    window, alone = (MetricWindow(parse_metrics(metrics=["accuracy"]).streams, {}) for _ in range(2))
    alone._joins = False
    measured: list[int] = []
    window._measure = lambda one: (measured.append(len(one.label_ids)), MetricWindow._measure(window, one))[0]  # type: ignore[method-assign]
    logits, labels = torch.zeros(2, 4), torch.zeros(2, dtype=torch.long)
    for number in range(10):  # written to in place, as graphs that are replayed do
        logits.zero_()[:, number % 4] = 1.0
        labels.fill_(number % 3)
        alone.add(seen(logits, labels))
        window.add(seen(logits, labels))
    assert measured == [2] and window.states() == alone.states() and measured == [2, 18]
    big = seen(torch.zeros(2, MAX_HELD), labels)
    window.add(big)
    assert measured == [2, 18, 2]
    for _ in range(MAX_HELD // 4000 + 1):
        window.add(seen(torch.zeros(2, 2000), labels))
    assert len(measured) == 4  # what waits has a limit


def test_a_metric_that_does_not_fit_is_said_at_the_first_batch() -> None:
    window = MetricWindow(parse_metrics(metrics=["accuracy"]).streams, {})
    with pytest.raises(MetricError):
        window.add(seen(torch.zeros(4, 1), torch.zeros(4, dtype=torch.long)))


def test_numbers_of_torch_and_numpy_are_logged_as_numbers(ours: Api) -> None:
    class Logs(ours.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            trainer.log({"a": torch.tensor([0.5]), "b": np.float32(0.25), "c": np.arange(2), "d": "text"})

    trainer = ours.trainer(Net(), ours.args(max_steps=2, save_steps=3), train_dataset=rows(), callbacks=[Logs()])
    trainer.train()
    log = trainer.state.log_history[0]
    assert (type(log["a"]), log["a"], type(log["b"]), log["b"]) == (float, 0.5, float, 0.25)
    assert list(log["c"]) == [0, 1] and log["d"] == "text"


def test_train_metrics_that_cannot_be() -> None:
    for wanted in ("auto", lambda prediction: {}):
        with pytest.raises(MetricError):
            ostinato.Trainer(Net(), train_metrics=wanted)


def test_train_metrics_need_outputs(ours: Api) -> None:
    class Short(ours.Trainer):
        def compute_loss(self, model: Any, inputs: Any) -> Any:
            return model(**inputs)["loss"]

    trainer = ours.trainer(Net(), ours.args(max_steps=1), cls=Short, train_dataset=rows(), train_metrics=["accuracy"])
    with pytest.raises(MetricError, match="return_outputs"):
        trainer.train()


# ---- resumed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [1, 2, 3, 5])
def test_a_resumed_run_logs_the_same(tmp_path: Path, stop: int) -> None:
    class StopsAt(ostinato.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop |= state.global_step == self.step

        step = 99

    def run(folder: Path, step: int, *, resume: bool = False) -> list[dict[str, Any]]:
        api = Api("ostinato", folder)
        api.set_seed(7)

        class Mine(TwoLosses, ostinato.Trainer):
            pass

        stops = StopsAt()
        stops.step = step
        args = api.args(
            max_steps=6, logging_steps=3, save_strategy="steps", save_steps=1, gradient_accumulation_steps=2,
            per_device_train_batch_size=2,
        )  # fmt: skip
        trainer = api.trainer(
            Net(), args, cls=Mine, train_dataset=rows(), train_metrics=["accuracy"], callbacks=[stops]
        )
        trainer.train(resume_from_checkpoint=resume or None)
        return [{k: v for k, v in entry.items() if "runtime" not in k and "second" not in k}
                for entry in trainer.state.log_history]  # fmt: skip

    whole = run(tmp_path / "whole", 99)
    run(tmp_path / "cut", stop)
    assert run(tmp_path / "cut", 99, resume=True) == whole
    assert {"ce", "decay", "size", "accuracy"} <= set(whole[0])


def test_the_names_are_said_once_in_the_tiny_model(ours: Api) -> None:
    """A model of transformers' kind, whose loss is a share: parts keep the scale of the whole."""
    pytest.importorskip("transformers")

    class Scaled(ours.Trainer):
        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            outputs = model(**inputs)
            losses = {"lm": outputs.loss, "twice": 2 * outputs.loss}
            losses = {"loss": losses["lm"], **losses}
            return (losses, outputs) if return_outputs else losses

    args = ours.args(max_steps=3, gradient_accumulation_steps=2, per_device_train_batch_size=2)
    trainer = ours.trainer(tiny.bert(), args, cls=Scaled, train_dataset=tiny.classification_rows())
    trainer.train()
    assert logged(trainer, "lm") == pytest.approx(logged(trainer, "loss"), rel=1e-6)
    assert logged(trainer, "twice") == pytest.approx([2 * one for one in logged(trainer, "loss")], rel=1e-6)
