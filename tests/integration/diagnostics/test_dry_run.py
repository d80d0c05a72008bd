"""The rehearsal: what it tries, when, and that it leaves no trace."""

from __future__ import annotations

import copy
import os
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ostinato
from ostinato.core.errors import MetricError
from ostinato.core.random import RandomState
from ostinato.diagnostics import eval_dry_run
from ostinato.diagnostics.eval_dry_run import MetricCheck, Outcome, check_metrics, preserve_state
from tests.support import tiny
from tests.support.quiet_trainer import build_quiet_trainer

# ------------------------------------------------------------------------------------------------- what is decided


class Attempts:
    """Answers attempts from a script, and notes which were made."""

    def __init__(self, first: Any, whole: Any = None, *, in_metrics: bool = True) -> None:
        self.answers, self.made, self.in_metrics = {False: first, True: whole}, [], in_metrics

    def __call__(self, prefix: str, whole: bool) -> Outcome:
        self.made.append((prefix, whole))
        answer = self.answers[whole]
        if isinstance(answer, Exception):
            return Outcome({}, answer, self.in_metrics)
        return Outcome({f"{prefix}_{name}": value for name, value in answer.items()})


def check_of(attempts: Attempts, wanted: str | None = None, prefixes: tuple[str, ...] = ("eval",)) -> MetricCheck:
    return MetricCheck(prefixes, attempts, wanted)


def test_one_batch_is_enough() -> None:
    attempts = Attempts({"f1": 1.0})
    check_metrics(check_of(attempts, "f1"))
    assert attempts.made == [("eval", False)]


@pytest.mark.parametrize("error", [TypeError, AttributeError, NameError, ImportError, lambda text: MetricError(text)])
def test_mistakes_that_do_not_depend_on_the_rows(error) -> None:
    attempts = Attempts(error("wrong"), {"f1": 1.0})
    with pytest.raises(Exception, match="wrong"):
        check_metrics(check_of(attempts))
    assert attempts.made == [("eval", False)]


@pytest.mark.parametrize("error", [ValueError, KeyError, IndexError, ZeroDivisionError, RuntimeError])
def test_errors_that_may_be_due_to_one_batch_are_tried_with_all(error) -> None:
    attempts = Attempts(error("few"), {"f1": 1.0})
    check_metrics(check_of(attempts, "f1"))
    assert attempts.made == [("eval", False), ("eval", True)]


def test_an_error_with_all_rows_too() -> None:
    with pytest.raises(ValueError, match="all"):
        check_metrics(check_of(Attempts(ValueError("few"), ValueError("all"))))


def test_errors_of_the_model_are_raised() -> None:
    attempts = Attempts(ValueError("shape"), {}, in_metrics=False)
    with pytest.raises(ValueError, match="shape"):
        check_metrics(check_of(attempts))
    assert attempts.made == [("eval", False)]


@pytest.mark.parametrize("wanted", ["f1", "eval_f1", "runtime", "samples_per_second"])
def test_the_wanted_metric_exists(wanted: str) -> None:
    attempts = Attempts({"f1": np.float32(1.0), "loss": 0.5})
    check_metrics(check_of(attempts, wanted))
    assert attempts.made == [("eval", False)]


def test_a_metric_that_exists_with_all_rows() -> None:
    attempts = Attempts({"recall_0": 1.0}, {"recall_0": 1.0, "recall_1": 1.0})
    check_metrics(check_of(attempts, "recall_1"))
    assert attempts.made == [("eval", False), ("eval", True)]


@pytest.mark.parametrize(
    ("wanted", "fix"),
    [
        ("recal", "did you mean 'recall'?"),
        ("bleu", "name one of these (the prefix eval_ may be left out)"),
    ],
)
def test_a_missing_metric(wanted: str, fix: str) -> None:
    with pytest.raises(KeyError) as caught:
        check_metrics(check_of(Attempts({"recall": 1.0}, {"recall": 1.0}), wanted))
    assert caught.value.fix == fix


def test_several_sets() -> None:
    attempts = Attempts({"f1": 1.0}, {"f1": 1.0})
    check_metrics(check_of(attempts, "b_f1", ("eval_a", "eval_b")))
    with pytest.raises(KeyError) as caught:
        check_metrics(check_of(attempts, "f1", ("eval_a", "eval_b")))
    assert caught.value.fix == "did you mean 'a_f1' or 'b_f1'?"


@pytest.mark.parametrize("value", ["0.5", None, [0.5], {"micro": 0.5}, np.zeros(2)])
def test_a_best_metric_must_be_a_number(value) -> None:
    with pytest.raises(TypeError, match="must be a number"):
        check_metrics(check_of(Attempts({"f1": value}), "f1"))


# ----------------------------------------------------------------------------------------------------- no trace left


class Remembering(nn.Module):
    """Everything a model can remember of a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.frozen = nn.BatchNorm1d(4)
        self.layer = nn.Linear(4, 3)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros(()))
        self.frozen.eval()

    def forward(self, x, labels=None):
        self.seen += 1
        logits = self.drop(self.layer(self.frozen(self.norm(x)))) + 0.1 * torch.randn(3)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def rows(n: int = 12) -> list[dict[str, Any]]:
    return [{"x": row["x"], "labels": i % 3} for i, row in enumerate(tiny.regression_rows(n))]


def test_preserve_state_restores_everything() -> None:
    model = tiny.seeded(Remembering)
    modes = [module.training for module in model.modules()]
    before, streams, buffer = copy.deepcopy(model.state_dict()), RandomState.capture(), model.seen
    with preserve_state(model):
        model.train()
        model(torch.randn(4, 4))
        random.random()
        np.random.rand()
    assert streams.is_current()
    assert model.seen is buffer
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Noisy:
    """A collator with random numbers of its own, made when it is first needed."""

    generator: Any = None

    def __call__(self, found: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(7)
        x = torch.tensor([row["x"] for row in found])
        return {
            "x": x + torch.randn(x.shape, generator=self.generator) + torch.randn(()) + random.random(),
            "labels": torch.tensor([row["labels"] for row in found]),
        }


def trained(tmp_path, *, metric: Any, data: Any = None, sharing: bool = False, **rest: Any):
    """Weights, buffers, logs and events of a short run."""
    ostinato.set_seed(1)
    model, events = tiny.seeded(Remembering), []

    class Listener(ostinato.TrainerCallback):
        def on_prediction_step(self, args, state, control, **kwargs):
            events.append(("on_prediction_step", state.global_step))

        def on_log(self, args, state, control, logs=None, **kwargs):
            events.append(("on_log", state.global_step, sorted(logs)))

    args = ostinato.TrainingArguments(
        output_dir=str(tmp_path), max_steps=6, per_device_train_batch_size=4, per_device_eval_batch_size=5,
        save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True, logging_steps=1, eval_strategy="steps",
        eval_steps=3, isolate_rng=not sharing, **rest,
    )  # fmt: skip
    trainer = ostinato.Trainer(
        model, args, data_collator=Noisy(), train_dataset=rows(), eval_dataset=data or rows(7), compute_metrics=metric,
        callbacks=[Listener()],
    )  # fmt: skip
    trainer.remove_callback(ostinato.PrinterCallback)
    trainer.train()
    numbers = [
        {name: value for name, value in entry.items() if "runtime" not in name and "per_second" not in name}
        for entry in trainer.state.log_history
    ]
    return {name: value.clone() for name, value in model.state_dict().items()}, numbers, events


def measured(prediction) -> dict[str, float]:
    random.random(), np.random.rand(), torch.rand(2)
    return {"mean": float(prediction.predictions.mean())}


def one_class_is_too_few(prediction) -> dict[str, float]:
    if len(prediction.label_ids) < 7:
        raise ValueError("too few")
    return measured(prediction)


@pytest.mark.parametrize("metric", [measured, one_class_is_too_few], ids=["first batch", "whole set"])
@pytest.mark.parametrize("sharing", [False, True], ids=["own streams", "shared streams"])
@pytest.mark.parametrize("sets", [1, 2])
def test_training_is_not_affected(metric, sharing: bool, sets: int, tmp_path, monkeypatch) -> None:
    data = rows(7) if sets == 1 else {"a": rows(7), "b": rows(8)}
    run = lambda: trained(tmp_path, metric=metric, data=data, sharing=sharing)  # noqa: E731
    tried = []
    attempt = eval_dry_run.attempt

    def noting(trainer, prefix, name, ignore_keys, *, whole, first):
        tried.append(whole)
        return attempt(trainer, prefix, name, ignore_keys, whole=whole, first=first)

    monkeypatch.setattr(eval_dry_run, "attempt", noting)
    weights, numbers, events = run()
    assert tried == ([False, True] if metric is one_class_is_too_few else [False]) * sets
    monkeypatch.setattr(eval_dry_run, "can_check", lambda trainer, sets: False)
    plain_weights, plain_numbers, plain_events = run()
    assert weights.keys() == plain_weights.keys()
    assert all(torch.equal(weights[name], plain_weights[name]) for name in weights)
    assert numbers == plain_numbers
    assert events == plain_events


def test_the_model_config_is_restored(tmp_path) -> None:
    """BERT writes down what kind of problem it has found its labels to be."""
    pytest.importorskip("transformers")
    model, seen = tiny.bert(), []

    class Look(ostinato.TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **kwargs):
            seen.append(model.config.problem_type)

    trainer = build(tmp_path, model, tiny.classification_rows(8), callbacks=[Look()])
    trainer.train()
    assert seen == [None]
    assert model.config.problem_type == "single_label_classification"


# ------------------------------------------------------------------------------------------------ when it takes place


def build(tmp_path, model=None, data=None, *, kind: type = ostinato.Trainer, **rest: Any) -> Any:
    data = data if data is not None else rows()
    given: dict[str, Any] = dict(
        max_steps=2, per_device_train_batch_size=4, save_strategy="no", eval_strategy="steps", eval_steps=2,
        compute_metrics=measured, train_dataset=data, eval_dataset=data,
    )  # fmt: skip
    model = model if model is not None else tiny.seeded(Remembering)
    return build_quiet_trainer(tmp_path, model, cls=kind, **{**given, **rest})


def attempts_of(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    made = []
    attempt = eval_dry_run.attempt
    monkeypatch.setattr(eval_dry_run, "attempt", lambda *args, **kwargs: made.append(1) or attempt(*args, **kwargs))
    trainer.train()
    return len(made)


def test_metrics_are_tried_by_default(tmp_path, monkeypatch) -> None:
    assert attempts_of(build(tmp_path), monkeypatch) == 1


def test_every_set_is_tried(tmp_path, monkeypatch) -> None:
    assert attempts_of(build(tmp_path, eval_dataset={"a": rows(4), "b": rows(5)}), monkeypatch) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"eval_strategy": "no"},
        {"eval_on_start": True},
        {"batch_eval_metrics": True, "compute_metrics": lambda prediction, compute_result: {"a": 1.0}},
        {"eval_dataset": tiny.StreamDataset(rows())},
        {"eval_dataset": {"rows": rows(), "stream": tiny.StreamDataset(rows())}},
        {"compute_metrics": None},
    ],
    ids=["no evaluation", "evaluation at the start", "by batch", "stream", "one stream", "no metrics"],
)
def test_when_metrics_are_not_tried(options: dict, tmp_path, monkeypatch) -> None:
    assert attempts_of(build(tmp_path, **options), monkeypatch) == 0


@pytest.mark.parametrize(
    "name",
    ["evaluate", "evaluation_loop", "prediction_step", "compute_loss", "get_eval_dataloader", "_prepare_inputs"],
)
def test_overridden_methods_are_not_tried(name: str, tmp_path, monkeypatch) -> None:
    def override(self, *args, **kwargs):
        return getattr(super(Own, self), name)(*args, **kwargs)

    Own = type("Own", (ostinato.Trainer,), {name: override})
    assert attempts_of(build(tmp_path, kind=Own), monkeypatch) == 0


def test_a_metric_with_a_generator_is_not_tried(tmp_path, monkeypatch) -> None:
    scores = (score for score in (0.5,))

    def metric(prediction):
        return {"score": next(scores)}

    assert attempts_of(build(tmp_path, compute_metrics=metric), monkeypatch) == 0


def test_the_state_of_metrics_is_restored(tmp_path) -> None:
    calls = []

    def metric(prediction):
        calls.append(len(prediction.label_ids))
        return {"calls": len(calls)}

    trainer = build(tmp_path, compute_metrics=metric)
    trainer.train()
    assert calls == [12]


def test_no_workers_are_started(tmp_path) -> None:
    """Reading one batch in this process is faster than starting another."""
    here = os.getpid()

    def metric(prediction):
        readers = set(prediction.predictions[:, 0].tolist())
        return {"read_elsewhere": float(readers != {here})}

    class Who(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def forward(self, reader, labels=None):
            return {"loss": self.layer(labels[:, None].float()).mean(), "logits": reader[:, None]}

    def collate(found):
        return {"reader": torch.tensor([os.getpid()] * len(found)), "labels": torch.tensor([0.0] * len(found))}

    trainer = build(tmp_path, Who(), compute_metrics=metric, dataloader_num_workers=1)
    trainer.data_collator = collate
    trainer.state.max_steps = 2
    trainer.create_optimizer_and_scheduler(2)
    assert eval_dry_run.can_check(trainer, [trainer.eval_dataset])
    assert eval_dry_run.attempt(trainer, "eval", None, None, whole=False).metrics["eval_read_elsewhere"] == 0.0


def test_a_metric_that_a_callback_may_add_is_not_checked(tmp_path) -> None:
    class Adds(ostinato.TrainerCallback):
        def on_evaluate(self, args, state, control, metrics=None, **kwargs):
            metrics["eval_bleu"] = 1.0

    best = {"metric_for_best_model": "bleu", "greater_is_better": True}
    trainer = build(tmp_path, callbacks=[Adds()], **best)
    trainer.train()
    assert trainer.state.best_metric == 1.0


def test_missing_labels_are_found_for_the_loss_too(tmp_path) -> None:
    data = [{"x": row["x"]} for row in rows()]
    trainer = build(tmp_path, eval_dataset=data, compute_metrics=None, metric_for_best_model="loss")
    with pytest.raises(KeyError, match="metric_for_best_model='loss'"):
        trainer.train()
    assert trainer.state.global_step == 0
