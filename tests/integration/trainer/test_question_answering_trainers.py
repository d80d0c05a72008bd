"""Trainers with examples and post-processing: answers are measured, not predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ostinato import (
    EarlyStoppingCallback,
    EvalPrediction,
    MetricError,
    QuestionAnsweringSeq2SeqTrainer,
    QuestionAnsweringTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    TrainingArguments,
)
from tests.support import tiny


class PointerForQuestionAnswering(nn.Module):
    """Start and end logits of six tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(1, 2)

    def forward(self, x: torch.Tensor, start_positions: Any = None, end_positions: Any = None) -> dict[str, Any]:
        starts, ends = self.layer(x.unsqueeze(-1)).unbind(-1)
        logits = {"start_logits": starts, "end_logits": ends}
        if start_positions is None:
            return logits
        cross = nn.functional.cross_entropy
        return {"loss": cross(starts, start_positions) + cross(ends, end_positions), **logits}


def features(count: int = 12, *, labelled: bool = False) -> list[dict[str, Any]]:
    """Two of each example."""
    rows = [{"x": [float((n * k) % 7) for k in range(6)], "example_id": f"q{n // 2}"} for n in range(count)]
    return [{**row, "start_positions": 1, "end_positions": 2} for row in rows] if labelled else rows


EXAMPLES = [{"id": f"q{n}", "answer": n % 2} for n in range(6)]


class Answering:
    """A post-processing that remembers how it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, examples: Any, rows: Any, predictions: Any, *stage: str) -> EvalPrediction:
        self.calls.append((len(examples), len(rows), len(predictions[0]), stage))
        known = [row["example_id"] for row in rows]
        answers = [int(predictions[0][known.index(one["id"])].argmax()) % 2 for one in examples]
        return EvalPrediction(np.array(answers), np.array([one["answer"] for one in examples]))


def right(prediction: EvalPrediction) -> dict[str, float]:
    return {"f1": float((prediction.predictions == prediction.label_ids).mean())}


def build(directory: Path, **options: Any) -> QuestionAnsweringTrainer:
    given = {
        "eval_dataset": features(),
        "eval_examples": EXAMPLES,
        "post_process_function": Answering(),
        "compute_metrics": right,
        "train_dataset": features(16, labelled=True),
    }
    given.update({name: options.pop(name) for name in list(options) if name in (*given, "callbacks")})
    settings = {"per_device_eval_batch_size": 2, "per_device_train_batch_size": 4, "max_steps": 4, "logging_steps": 1}
    arguments = TrainingArguments(
        str(directory), **{**settings, "use_cpu": True, "disable_tqdm": True, "report_to": "none", **options}
    )
    return QuestionAnsweringTrainer(PointerForQuestionAnswering(), arguments, **given)


def test_an_evaluation_measures_answers(tmp_path: Path) -> None:
    class Listening(TrainerCallback):
        heard: list[Any] = []

        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
            self.heard.append(metrics)

    trainer = build(tmp_path, callbacks=[Listening()])
    metrics = trainer.evaluate()
    assert trainer.post_process_function.calls == [(6, 12, 12, ())]
    assert 0 <= metrics["eval_f1"] <= 1
    assert {"eval_runtime", "eval_samples_per_second"} <= set(metrics)
    assert trainer.state.log_history[-1]["eval_f1"] == metrics["eval_f1"]
    assert Listening.heard[-1]["eval_f1"] == metrics["eval_f1"]
    assert trainer.compute_metrics is right


def test_other_rows_under_another_name(tmp_path: Path) -> None:
    trainer = build(tmp_path)
    metrics = trainer.evaluate(features(4), EXAMPLES[:2], metric_key_prefix="dev")
    assert trainer.post_process_function.calls == [(2, 4, 4, ())]
    assert "dev_f1" in metrics and "dev_runtime" in metrics


def test_features_with_positions_have_a_loss_too(tmp_path: Path) -> None:
    metrics = build(tmp_path, eval_dataset=features(labelled=True)).evaluate()
    assert metrics["eval_loss"] > 0 and "eval_f1" in metrics


def test_predictions_are_answers(tmp_path: Path) -> None:
    trainer = build(tmp_path)
    output = trainer.predict(features(4), EXAMPLES[:2])
    assert trainer.post_process_function.calls == [(2, 4, 4, ("predict",))]
    assert output.predictions.shape == (2,) and output.label_ids.tolist() == [0, 1]
    assert "test_f1" in output.metrics
    assert not any("test_f1" in entry for entry in trainer.state.log_history)


def test_without_references_there_are_answers_and_no_metrics(tmp_path: Path) -> None:
    trainer = build(tmp_path, post_process_function=lambda *given: EvalPrediction(["a", "b"], None))
    output = trainer.predict(features(4), EXAMPLES[:2], metric_key_prefix="predict")
    assert output.predictions == ["a", "b"]
    assert "predict_f1" not in output.metrics


def test_without_a_metric_or_post_processing_it_is_a_trainer(tmp_path: Path) -> None:
    silent = build(tmp_path, compute_metrics=None, eval_dataset=features(labelled=True))
    assert "eval_loss" in silent.evaluate()
    assert silent.post_process_function.calls == []
    assert silent.predict(features(4), EXAMPLES[:2]).predictions[0].shape == (4, 6)
    plain = build(tmp_path, post_process_function=None, eval_examples=None, eval_dataset=features(labelled=True))
    plain.compute_metrics = lambda prediction: {"rows": len(prediction.predictions[0])}
    assert plain.evaluate()["eval_rows"] == 12


def test_metrics_by_name(tmp_path: Path) -> None:
    def texts(examples: Any, rows: Any, predictions: Any) -> EvalPrediction:
        told = [{"id": one["id"], "prediction_text": "yes"} for one in examples]
        truth = [{"id": one["id"], "answers": {"text": ["yes" if one["answer"] else "no"]}} for one in examples]
        return EvalPrediction(told, truth)

    metrics = build(tmp_path, post_process_function=texts, compute_metrics="squad").evaluate()
    assert (metrics["eval_exact_match"], metrics["eval_f1"]) == (50.0, 50.0)


def test_no_examples_is_said(tmp_path: Path) -> None:
    with pytest.raises(MetricError, match="no examples to answer"):
        build(tmp_path, eval_examples=None).evaluate()


def test_several_evaluation_sets(tmp_path: Path) -> None:
    sets, examples = {"a": features(4), "b": features(12)}, {"a": EXAMPLES[:2], "b": EXAMPLES}
    trainer = build(tmp_path, eval_dataset=sets, eval_examples=examples)
    metrics = trainer.evaluate()
    assert [call[:3] for call in trainer.post_process_function.calls] == [(2, 4, 4), (6, 12, 12)]
    assert {"eval_a_f1", "eval_b_f1"} <= set(metrics)


@pytest.mark.parametrize("rehearse", [True, False])
def test_training_goes_by_answers(tmp_path: Path, rehearse: bool) -> None:
    measured: list[float] = []

    def rising(prediction: EvalPrediction) -> dict[str, float]:
        measured.append(round(0.1 * len(measured), 1) if len(measured) < 3 else 0.0)
        return {"f1": measured[-1]}

    trainer = build(
        tmp_path,
        compute_metrics=rising,
        callbacks=[EarlyStoppingCallback(2)],
        eval_strategy="steps",
        eval_steps=1,
        save_steps=1,
        max_steps=9,
        load_best_model_at_end=True,
        metric_for_best_model="f1",
        greater_is_better=True,
        rehearse=rehearse,
    )
    trainer.train()
    calls = trainer.post_process_function.calls
    assert calls[0][:3] == ((2, 4, 4) if rehearse else (6, 12, 12)), "a rehearsal sees the first features"
    history = [entry["eval_f1"] for entry in trainer.state.log_history if "eval_f1" in entry]
    assert history == [0.0, 0.1, 0.2, 0.0, 0.0], "a rehearsal is not remembered, and patience is two evaluations"
    assert trainer.state.best_metric == 0.2 and trainer.state.best_global_step == 3


def test_answers_that_are_written(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    rows = [{**row, "example_id": str(n)} for n, row in enumerate(tiny.translation_rows(6))]
    given: list[Any] = []

    def texts(examples: Any, rows: Any, output: Any, stage: str = "eval") -> EvalPrediction:
        given.append((output.predictions.shape, output.num_samples, stage))
        return EvalPrediction([str(ids[1]) for ids in output.predictions], [one["answer"] for one in examples])

    arguments = Seq2SeqTrainingArguments(
        str(tmp_path), predict_with_generate=True, use_cpu=True, report_to="none", disable_tqdm=True
    )
    trainer = QuestionAnsweringSeq2SeqTrainer(
        tiny.t5(),
        arguments,
        eval_dataset=rows,
        eval_examples=[{"id": str(n), "answer": "1"} for n in range(6)],
        post_process_function=texts,
        compute_metrics=lambda prediction: {"rows": len(prediction.predictions)},
    )
    metrics = trainer.evaluate(max_length=5)
    assert metrics["eval_rows"] == 6 and metrics["eval_loss"] > 0
    output = trainer.predict(rows[:2], [{"id": "0", "answer": "1"}, {"id": "1", "answer": "1"}], max_length=4)
    assert output.metrics["test_rows"] == 2
    assert [(shape[0], rows, stage) for shape, rows, stage in given] == [(6, 6, "eval"), (2, 2, "predict")]
    assert [shape[1] for shape, *_ in given] == [5, 4]
