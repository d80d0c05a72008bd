"""Metrics by name, chosen, streaming, and of several evaluation sets, as a trainer computes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ostinato import EvalSet, PrinterCallback, Trainer, TrainerCallback
from ostinato.core.errors import MetricError
from ostinato.core.notices import forget_notices
from ostinato.metrics import metric
from tests.support import tiny

BATCH = {"per_device_eval_batch_size": 4}


class Classes(nn.Module):
    """One logit per class, and what the layer saw."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(4, classes)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "states": 2 * x, "logits": logits}


def rows(n: int = 10, classes: int = 3) -> list[dict]:
    return [{"x": row["x"], "labels": i % classes} for i, row in enumerate(tiny.regression_rows(n))]


def true_accuracy(model: nn.Module, data: list[dict]) -> float:
    with torch.no_grad():
        logits = model(torch.tensor([row["x"] for row in data]))["logits"]
    return float((logits.argmax(-1) == torch.tensor([row["labels"] for row in data])).double().mean())


def make(api, model: nn.Module, args: dict | None = None, *, cls: type[Trainer] = Trainer, **options) -> Trainer:
    """A trainer whom nobody listens to: what a callback might add to the metrics is not to be expected."""
    trainer = cls(model, api.args(**BATCH, **(args or {})), **options)
    trainer.remove_callback(PrinterCallback)
    return trainer


def build(api, *, args: dict | None = None, **options) -> Trainer:
    return make(api, tiny.seeded(Classes), args, **options)


def names_in(metrics: dict) -> set[str]:
    usual = ("runtime", "per_second", "preparation_time", "epoch")
    return {name for name in metrics if not name.endswith(usual)}


def find_notices(capfd: pytest.CaptureFixture[str], about: str) -> list[str]:
    return [line for line in capfd.readouterr().err.splitlines() if about in line]


# --------------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    "how",
    [
        {"metrics": ["accuracy", "f1"]},
        {"compute_metrics": ["accuracy", "f1"]},
        {"compute_metrics": "accuracy", "metrics": "f1"},
        {"metrics": {"accuracy": {}, "f1": {}}},
    ],
)
def test_by_name(ours, how: dict) -> None:
    trainer = build(ours, **how)
    found = trainer.evaluate(rows())
    assert names_in(found) == {"eval_loss", "eval_accuracy", "eval_f1"}
    assert found["eval_accuracy"] == pytest.approx(true_accuracy(trainer.model, rows()))
    assert type(found["eval_accuracy"]) is float


def test_an_interval_on_request(ours) -> None:
    found = build(ours, metrics=[("accuracy", {"interval": 0.9})]).evaluate(rows(30))
    assert found["eval_accuracy_low"] <= found["eval_accuracy"] <= found["eval_accuracy_high"]
    assert found["eval_accuracy_low"] < found["eval_accuracy_high"]


def test_names_and_a_function(ours) -> None:
    def rows_seen(prediction):
        return {"rows": len(prediction.labels)}

    found = build(ours, compute_metrics=rows_seen, metrics=["accuracy"]).evaluate(rows())
    assert found["eval_rows"] == 10
    assert "eval_accuracy" in found


def test_two_of_one_name(ours) -> None:
    with pytest.raises(MetricError, match="compute_metrics and metrics= give the result 'accuracy'"):
        build(ours, compute_metrics=lambda p: {"accuracy": 1.0}, metrics=["accuracy"]).evaluate(rows())


def test_misspelt_names_fail_at_once(ours) -> None:
    with pytest.raises(MetricError, match="there is no metric 'f2'"):
        build(ours, metrics=["f2"])
    with pytest.raises(MetricError, match="there is no metric 'f2'"):
        build(ours, eval_dataset={"a": EvalSet(rows(), metrics=["f2"])})


def test_the_function_may_change_at_any_time(ours) -> None:
    trainer = build(ours, compute_metrics="accuracy")
    assert trainer.compute_metrics == "accuracy"
    trainer.compute_metrics = lambda prediction: {"mine": 1.0}
    assert names_in(trainer.evaluate(rows())) == {"eval_loss", "eval_mine"}
    trainer.compute_metrics = None
    assert names_in(trainer.evaluate(rows())) == {"eval_loss"}


def test_prediction_measures_and_keeps(ours) -> None:
    output = build(ours, metrics=["accuracy"]).predict(rows())
    assert "test_accuracy" in output.metrics
    assert [part.shape for part in output.predictions] == [(10, 4), (10, 3)]
    assert output.label_ids.tolist() == [row["labels"] for row in rows()]


def test_an_evaluation_keeps_nothing_for_metrics_that_stream(ours) -> None:
    kept = []

    class Watching(Trainer):
        def evaluation_loop(self, *args, **kwargs):
            kept.append(super().evaluation_loop(*args, **kwargs))
            return kept[-1]

    trainer = make(ours, tiny.seeded(Classes), metrics=["accuracy"], cls=Watching)
    trainer.evaluate(rows())
    assert (kept[0].predictions, kept[0].label_ids, kept[0].num_samples) == (None, None, 10)
    trainer.evaluation_loop(trainer.get_eval_dataloader(rows()), "Evaluation")
    assert kept[1].predictions is not None


# ----------------------------------------------------------------------------------------------------------- streaming


class Watch:
    """A metric of the user's own."""

    def __init__(self) -> None:
        self.history, self.rows = [], 99

    def reset(self) -> None:
        self.history.append("reset")
        self.rows = 0

    def update(self, prediction) -> None:
        self.history.append((type(prediction.logits).__name__, len(prediction.labels), *prediction.outputs))
        self.rows += len(prediction.labels)

    def compute(self):
        self.history.append("compute")
        return {"rows_seen": self.rows}


class Rewards(nn.Module):
    """A loss without labels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x, return_loss=True):
        logits = self.layer(x)
        return {"loss": (logits[:, 1] - logits[:, 0]).mean(), "logits": logits}


class Margin:
    """A metric of the user's own that needs no labels."""

    def reset(self) -> None:
        self.margins: list[float] = []

    def update(self, prediction) -> None:
        assert not prediction.has_labels
        self.margins += (prediction.logits[:, 0] - prediction.logits[:, 1]).tolist()

    def compute(self):
        return float(np.mean(self.margins))


def test_without_labels_there_is_nothing_to_compare_with(ours, capfd) -> None:
    """Those that take all there is are shown it; the others are said to be left out, once."""
    forget_notices()
    data = [{"x": row["x"]} for row in rows()]
    found = make(ours, tiny.seeded(Rewards), metrics=[Margin(), "accuracy"], compute_metrics="auto").evaluate(data)
    assert names_in(found) == {"eval_loss", "eval_margin"}
    assert found["eval_margin"] == pytest.approx(-found["eval_loss"])
    assert len(find_notices(capfd, "not measured: accuracy, 'auto'; the model's loss needs no labels")) == 1


def test_labels_that_are_named_and_missing_are_told(ours, capfd) -> None:
    forget_notices()
    trainer = make(ours, tiny.seeded(Rewards), {"label_names": ["labels"]}, compute_metrics=lambda prediction: {})
    trainer.evaluate([{"x": row["x"]} for row in rows()])
    assert len(find_notices(capfd, "compute_metrics is not called: the evaluation set has no labels")) == 1


@pytest.mark.parametrize("as_what", ["compute_metrics", "metrics"])
def test_ones_own_metric(ours, as_what: str) -> None:
    watch = Watch()
    found = build(ours, **{as_what: watch}).evaluate(rows())
    batches = [("Tensor", size, "states", "logits") for size in (4, 4, 2)]
    assert watch.history == ["reset", *batches, "compute", "reset"]
    assert found["eval_rows_seen"] == 10


def test_a_metric_is_empty_again_after_a_failure(ours) -> None:
    class Fails(Watch):
        def compute(self):
            raise RuntimeError("no")

    watch = Fails()
    trainer = build(ours, metrics=[watch])
    with pytest.raises(RuntimeError, match="no"):
        trainer.evaluate(rows())
    assert watch.history[-1] == "reset"


def test_what_a_metric_was_given_stands_below_its_failure(ours) -> None:
    class Fails(Watch):
        def update(self, prediction):
            return prediction.labels["x"]

    with pytest.raises(Exception, match=r".*") as failure:
        build(ours, metrics=[Fails()]).evaluate(rows())
    assert any("received predictions" in note for note in failure.value.__notes__)


def test_torchmetrics(ours) -> None:
    accuracy = pytest.importorskip("torchmetrics.classification").MulticlassAccuracy(3, average="micro")
    trainer = build(ours, compute_metrics=accuracy, metrics=["accuracy"])
    found = trainer.evaluate(rows())
    assert found["eval_multiclass_accuracy"] == pytest.approx(found["eval_accuracy"])
    assert accuracy.update_count == 0


def test_batch_by_batch_as_of_old_and_streaming(ours) -> None:
    """`batch_eval_metrics` concerns the function; metrics that stream do so anyway."""
    calls = []

    def function(prediction, compute_result):
        calls.append((len(prediction.labels), *prediction.outputs))
        return {"calls": len(calls)} if compute_result else None

    found = build(ours, args={"batch_eval_metrics": True}, compute_metrics=function, metrics=["accuracy"])
    assert names_in(found.evaluate(rows())) == {"eval_loss", "eval_calls", "eval_accuracy"}
    assert calls == [(size, "states", "logits") for size in (4, 4, 2)]


def test_nothing_is_measured_without_predictions(ours, capfd) -> None:
    forget_notices()
    trainer = build(ours, args={"prediction_loss_only": True}, metrics=["accuracy"])
    assert names_in(trainer.evaluate(rows())) == {"eval_loss"}
    assert len(find_notices(capfd, "no metrics are computed: prediction_loss_only=True")) == 1


# ------------------------------------------------------------------------------------------------------ named outputs


def seen_by(trainer: Trainer, data: list[dict] | None = None):
    seen = []
    trainer.compute_metrics = lambda prediction: seen.append(prediction) or {}
    trainer.evaluate(data if data is not None else rows())
    return seen[0]


def test_outputs_have_the_models_names(ours) -> None:
    prediction = seen_by(build(ours))
    assert list(prediction.outputs) == ["states", "logits"]
    assert prediction.logits.shape == (10, 3)
    assert not prediction.shifts_labels


class StatesOnly(Trainer):
    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        return loss, logits[0], labels


class Doubled(Trainer):
    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        return loss, tuple(2 * part for part in logits), labels


def test_a_step_of_ones_own_hides_the_names(ours) -> None:
    """What it returned may be anything."""
    for step, names in ((StatesOnly, ["logits"]), (Doubled, ["0", "1"])):
        trainer = make(ours, tiny.seeded(Classes), cls=step)
        assert list(seen_by(trainer).outputs) == names


def test_preprocessed_logits_have_no_names(ours) -> None:
    trainer = build(ours, preprocess_logits_for_metrics=lambda logits, labels: logits[1].argmax(-1))
    prediction = seen_by(trainer)
    assert list(prediction.outputs) == ["logits"]
    assert prediction.logits.shape == (10,)


def test_a_causal_model_is_aligned_and_read_as_text(ours) -> None:
    pytest.importorskip("transformers")
    trainer = make(ours, tiny.llama(), processing_class=tiny.tokenizer())
    data = tiny.language_rows(6)
    prediction = seen_by(trainer, data)
    guess, truth = prediction.aligned()
    losses = nn.functional.cross_entropy(torch.from_numpy(guess), torch.from_numpy(truth))
    assert trainer.evaluate(data)["eval_loss"] == pytest.approx(float(losses), rel=1e-5)
    assert len(prediction.pred_text) == len(prediction.label_text) == 6
    assert prediction.label_text[0].split()[0].startswith("w")


# --------------------------------------------------------------------------------------------------- labels by name


class Targets(nn.Module):
    """Calls its labels something else."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, target=None):
        logits = self.layer(x)
        loss = None if target is None else nn.functional.cross_entropy(logits, target)
        return {"loss": loss, "logits": logits}


def target_rows() -> list[dict]:
    return [{"x": row["x"], "target": -100 if i % 4 == 0 else row["labels"]} for i, row in enumerate(rows(30))]


def test_labels_are_asked_for_by_name(ours) -> None:
    with pytest.raises(
        MetricError, match=r"no metric can be computed(?s:.*)have x, target(?s:.*)label_names=\['target'\]"
    ):
        make(ours, tiny.seeded(Targets), metrics=["accuracy"]).evaluate(target_rows())


def test_labels_under_another_name_count_as_labels(ours) -> None:
    found = []
    for size in (1, 2, 7, 30):
        args = {"label_names": ["target"], "per_device_eval_batch_size": size}
        trainer = Trainer(tiny.seeded(Targets), ours.args(**args), metrics=["accuracy"])
        trainer.remove_callback(PrinterCallback)
        found.append(trainer.evaluate(target_rows()))
    assert [one["eval_loss"] for one in found] == pytest.approx([found[-1]["eval_loss"]] * 4, rel=1e-6)
    assert len({one["eval_accuracy"] for one in found}) == 1


# ---------------------------------------------------------------------------------------------------------------- auto


def tokens(labels):
    return {"input_ids": [5, 6, 7, 8], "attention_mask": [1] * 4, "labels": labels}


def spans(n):
    ids = {"input_ids": [5, 6, 7, 8], "attention_mask": [1] * 4}
    return [{**ids, "start_positions": 1, "end_positions": 2} for _ in range(n)]


def choices(n):
    one = [[5, 6, 7], [8, 9, 4]]
    return [{"input_ids": one, "attention_mask": [[1] * 3] * 2, "labels": i % 2} for i in range(n)]


TAGS = {0: "O", 1: "B-PER", 2: "I-PER"}
HEADS = {
    "single label": (lambda: tiny.bert(), lambda: tiny.classification_rows(6), {"accuracy", "f1"}),
    "two labels": (
        lambda: tiny.bert(num_labels=2),
        lambda: tiny.classification_rows(6, num_labels=2),
        {"accuracy", "f1", "matthews_correlation"},
    ),
    "several labels": (
        lambda: tiny.bert(problem_type="multi_label_classification"),
        lambda: [tokens([1.0, 0.0, 1.0]) for _ in range(6)],
        {"multilabel_f1", "multilabel_accuracy"},
    ),
    "regression": (
        lambda: tiny.bert(num_labels=1),
        lambda: [{**tokens(float(i)), "input_ids": [5, 6, 7, 8 + i]} for i in range(6)],
        {"mse", "mae", "pearson", "spearman"},
    ),
    "tokens": (
        lambda: tiny.bert("TokenClassification"),
        lambda: [tokens([0, 1, 2, -100]) for _ in range(6)],
        {"accuracy", "f1"},
    ),
    "entities": (
        lambda: tiny.bert("TokenClassification", id2label=TAGS),
        lambda: [tokens([0, 1, 2, -100]) for _ in range(6)],
        {"precision", "recall", "f1", "accuracy"},
    ),
    "answers": (
        lambda: tiny.bert("QuestionAnswering", num_labels=2),
        lambda: spans(6),
        {"span_exact_match", "span_f1"},
    ),
    "causal": (lambda: tiny.llama(), lambda: tiny.language_rows(6), {"perplexity", "token_accuracy"}),
    "masked": (
        lambda: tiny.bert("MaskedLM"),
        lambda: [tokens([-100, 6, -100, 8]) for _ in range(6)],
        {"perplexity", "token_accuracy"},
    ),
    "seq2seq": (lambda: tiny.t5(), lambda: tiny.translation_rows(6), {"perplexity", "token_accuracy"}),
    "choices": (lambda: tiny.bert("MultipleChoice"), lambda: choices(6), {"accuracy"}),
    "a plain module": (lambda: tiny.seeded(Classes), lambda: rows(6), {"accuracy", "f1"}),
}


@pytest.mark.parametrize("head", HEADS)
def test_fitting_metrics(ours, head: str, capfd) -> None:
    pytest.importorskip("transformers")
    forget_notices()
    model, data, expected = HEADS[head]
    trainer = make(ours, model(), compute_metrics="auto")
    found = trainer.evaluate(data())
    assert names_in(found) == {"eval_loss", *(f"eval_{name}" for name in expected)}
    (line,) = find_notices(capfd, "compute_metrics='auto' measures")
    assert ": " in line.partition("measures ")[2]
    if head in ("causal", "masked", "seq2seq"):
        assert found["eval_perplexity"] == pytest.approx(np.exp(found["eval_loss"]), rel=1e-5)


def test_the_shift_is_that_of_the_loss(ours) -> None:
    """GPT-2 does not state how its loss compares; it is tried out, and metrics follow."""
    pytest.importorskip("transformers")
    data = tiny.language_rows(6)
    trainer = make(ours, tiny.gpt2(loss_type=None), metrics=["perplexity"])
    found = trainer.evaluate(data)
    assert found["eval_perplexity"] == pytest.approx(np.exp(found["eval_loss"]), rel=1e-5)


def test_tokens_made_of_logits_have_no_perplexity(ours) -> None:
    pytest.importorskip("transformers")
    options = {"compute_metrics": "auto", "preprocess_logits_for_metrics": lambda logits, labels: logits.argmax(-1)}
    found = make(ours, tiny.llama(), **options).evaluate(tiny.language_rows(6))
    assert names_in(found) == {"eval_loss", "eval_token_accuracy"}


def test_nothing_fits(ours, capfd) -> None:
    forget_notices()

    class Odd(Classes):
        def forward(self, x, labels=None):
            return {"loss": self.layer(x).mean(), "logits": self.layer(x)}

    trainer = make(ours, tiny.seeded(Odd), compute_metrics="auto")
    found = trainer.evaluate([{"x": row["x"], "labels": [1, 5, 2]} for row in rows()])
    assert names_in(found) == {"eval_loss"}
    assert find_notices(capfd, "compute_metrics='auto' measures nothing: no metric fits Odd for sure")


# ---------------------------------------------------------------------------------------------------- several sets


def test_options_of_a_set(ours) -> None:
    sizes = []

    def collate(batch):
        sizes.append(len(batch))
        return {"x": torch.tensor([row["x"] for row in batch]), "labels": torch.tensor([row["y"] for row in batch])}

    others = [{"x": row["x"], "y": row["labels"]} for row in rows(7)]
    sets = {
        "a": rows(10),
        "b": EvalSet(others, data_collator=collate, metrics=["balanced_accuracy"], batch_size=5),
        "c": EvalSet(rows(5), compute_metrics=lambda p: {"mine": 1.0}),
    }
    trainer = build(ours, args={"remove_unused_columns": False}, metrics=["accuracy"], eval_dataset=sets)
    found = trainer.evaluate()
    assert names_in(found) == {
        "eval_loss", "eval_a_loss", "eval_b_loss", "eval_c_loss",
        "eval_a_accuracy", "eval_b_balanced_accuracy", "eval_c_mine",
    }  # fmt: skip
    assert sizes == [5, 2]
    assert found["eval_b_steps_per_second"] / found["eval_b_samples_per_second"] == pytest.approx(2 / 7, rel=1e-2)
    assert found["eval_loss"] == pytest.approx(np.mean([found[f"eval_{name}_loss"] for name in "abc"]))
    assert names_in(trainer.evaluate("b")) == {"eval_loss", "eval_balanced_accuracy"}
    assert names_in(trainer.evaluate(sets["b"])) == {"eval_loss", "eval_balanced_accuracy"}
    assert names_in(trainer.evaluate(rows(4))) == {"eval_loss", "eval_accuracy"}


@pytest.mark.parametrize("waited_for", [False, True], ids=["nobody waits", "it decides about the best model"])
def test_the_mean_loss_is_logged_and_told_to_who_waits_for_it(ours, waited_for: bool) -> None:
    """Callbacks otherwise hear what they hear from transformers: each set once."""
    reported = []

    class Listens(TrainerCallback):
        def on_evaluate(self, args, state, control, metrics, **kwargs):
            reported.append(names_in(metrics))

    trainer = build(ours, eval_dataset={"a": rows(4), "b": rows(6)}, callbacks=[Listens()])
    trainer.args.metric_for_best_model = "loss" if waited_for else None
    found = trainer.evaluate()
    assert found["eval_loss"] == pytest.approx((found["eval_a_loss"] + found["eval_b_loss"]) / 2)
    assert reported == [{"eval_a_loss"}, {"eval_b_loss"}, *([{"eval_loss"}] if waited_for else [])]
    if waited_for:
        assert trainer.state.log_history[-1]["eval_loss"] == found["eval_loss"]


def test_no_mean_without_all_losses(ours) -> None:
    unlabelled = [{"x": row["x"]} for row in rows(4)]
    found = build(ours, eval_dataset={"a": rows(4), "b": unlabelled}).evaluate()
    assert names_in(found) == {"eval_a_loss"}


@pytest.mark.parametrize("dataset", [None, "rows", {"a": []}, EvalSet([1])])
def test_what_a_set_is_not(dataset) -> None:
    with pytest.raises(ValueError, match="EvalSet was given a"):
        EvalSet(dataset)
    with pytest.raises(ValueError, match="batch_size=0"):
        EvalSet([1], batch_size=0)


# ------------------------------------------------------------------------------------------------------ best of them


STEPS = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 4, "save_strategy": "no"}


@pytest.mark.parametrize("wanted", ["accuracy", "eval_accuracy", "accuracy_low", "loss"])
def test_the_best_by_a_metric_by_name(ours, wanted: str) -> None:
    options = {"metrics": [("accuracy", {"interval": 0.5})], "train_dataset": rows(), "eval_dataset": rows()}
    trainer = build(ours, args={**STEPS, "metric_for_best_model": wanted}, **options)
    trainer.train()
    values = [log[f"eval_{wanted.removeprefix('eval_')}"] for log in trainer.state.log_history if "eval_loss" in log]
    assert trainer.state.best_metric == (min(values) if wanted == "loss" else max(values))


@pytest.mark.parametrize("wanted", ["a_accuracy", "a_loss", "b_mcc", "loss"])
def test_the_best_by_one_of_several_sets(ours, wanted: str) -> None:
    sets = {"a": rows(), "b": EvalSet(rows(6), metrics=["mcc"])}
    options = {"metrics": ["accuracy"], "train_dataset": rows(), "eval_dataset": sets}
    trainer = build(ours, args={**STEPS, "metric_for_best_model": wanted}, **options)
    trainer.train()
    assert trainer.state.best_metric is not None


def test_a_plateau_of_several_sets(ours) -> None:
    """The rate follows the mean of their losses."""
    options = {"train_dataset": rows(), "eval_dataset": {"a": rows(4), "b": rows(6)}}
    trainer = build(ours, args={**STEPS, "lr_scheduler_type": "reduce_lr_on_plateau"}, **options)
    trainer.train()
    assert trainer.lr_scheduler.best == min(
        log["eval_loss"] for log in trainer.state.log_history if "eval_loss" in log
    )


@pytest.mark.parametrize(
    ("wanted", "reported"),
    [
        ("acuracy", "an evaluation measures loss, runtime, .*accuracy\n.*did you mean 'accuracy'"),
        ("f1", "an evaluation measures loss"),
    ],
)
def test_a_name_that_is_not_measured_fails_before_the_first_step(ours, wanted: str, reported: str) -> None:
    options = {"metrics": ["accuracy"], "train_dataset": rows(), "eval_dataset": rows()}
    trainer = build(ours, args={**STEPS, "metric_for_best_model": wanted}, **options)
    with pytest.raises(KeyError, match=reported):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_set_that_is_not_there_fails_before_the_first_step(ours) -> None:
    options = {"metrics": ["accuracy"], "train_dataset": rows(), "eval_dataset": {"a": rows(), "b": rows()}}
    trainer = build(ours, args={**STEPS, "metric_for_best_model": "c_loss"}, **options)
    with pytest.raises(KeyError, match=r"measures loss, a_loss, .*a_accuracy, b_loss"):
        trainer.train()


@pytest.mark.parametrize(("given", "best"), [({}, min), ({"greater_is_better": True}, max)])
def test_lower_may_be_better(ours, given: dict, best, capfd) -> None:
    forget_notices()
    args = {**STEPS, "metric_for_best_model": "perplexity_like", **given}
    options = {"metrics": [("mse", {"name": "perplexity_like"})]}
    data = tiny.regression_rows(12)
    trainer = make(ours, tiny.regression(), args, train_dataset=data, eval_dataset=data, **options)
    trainer.train()
    values = [log["eval_perplexity_like"] for log in trainer.state.log_history if "eval_loss" in log]
    assert values[0] != values[1]
    assert trainer.state.best_metric == best(values)
    assert len(find_notices(capfd, "the lowest counts as best")) == (0 if given else 1)


# ---------------------------------------------------------------------------------------------------- before training


def test_trying_leaves_metrics_untouched(ours) -> None:
    watch = Watch()
    options = {"metrics": [watch, "accuracy"], "train_dataset": rows(), "eval_dataset": rows()}
    trainer = build(ours, args={**STEPS, "max_steps": 2}, **options)
    began = []

    class Begins(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            began.append((list(watch.history), watch.rows))

    trainer.add_callback(Begins())
    trainer.train()
    assert began == [([], 99)]
    assert watch.history.count("compute") == 1


def test_a_first_batch_without_labels_is_not_a_mistake(ours) -> None:
    data = rows(10)
    for row in data[:4]:
        row["labels"] = -100
    options = {"metrics": ["accuracy"], "train_dataset": rows(), "eval_dataset": data}
    trainer = build(ours, args={**STEPS, "max_steps": 2}, **options)
    trainer.train()
    assert "eval_accuracy" in trainer.state.log_history[-2]


def test_a_wrong_metric_fails_before_the_first_step(ours) -> None:
    options = {"metrics": ["seqeval"], "train_dataset": rows(), "eval_dataset": rows()}
    trainer = build(ours, args={**STEPS}, **options)
    with pytest.raises(MetricError, match="seqeval"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_the_same_metric_for_two_trainers(ours) -> None:
    """What one trainer knows of its model is not what the other does."""
    pytest.importorskip("transformers")
    shared = metric("token_accuracy")
    causal = make(ours, tiny.llama(), metrics=[shared]).evaluate(tiny.language_rows(6))
    masked_rows = [tokens([-100, 6, -100, 8]) for _ in range(6)]
    masked = make(ours, tiny.bert("MaskedLM"), metrics=[shared]).evaluate(masked_rows)
    assert shared.shift is None  # type: ignore[attr-defined]
    for found in (causal, masked):
        assert "eval_token_accuracy" in found
