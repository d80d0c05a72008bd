"""Summarization: its sample, the same losses and ROUGE as a plain program of transformers, wrong rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from seq2seq_runs import SHORT, plain_program, save_model
from task_runs import assert_same_run, measured, read_rows, write_rows

from ostinato.tasks import run
from ostinato.tasks.samples.language import report_and_summary, source
from ostinato.tasks.summarization import sentences


def reports(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Texts of six sentences, and summaries of two."""
    numbers, rows = source(seed), []
    for _ in range(count):
        (text, first), (more, second) = report_and_summary(numbers), report_and_summary(numbers)
        rows.append({"text": f"{text} {more}", "summary": f"{first}. {second}."})
    return rows


def pairs(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["text"], row["summary"]) for row in rows]


@pytest.fixture
def model(tmp_path: Path) -> str:
    return save_model("bart", pairs(reports(100)), tmp_path / "model")


def test_the_sample_is_learned() -> None:
    finished = run("summarization", ["--sample"])
    assert finished.sample is not None
    assert finished.sample.is_beaten_by(finished.metrics), finished.metrics
    assert finished.metrics["eval_rouge1"] > 90
    home = Path("runs/summarization")
    predicted, rows = read_rows(home / "predictions.jsonl"), read_rows(home / "data/test.jsonl")
    assert [row["text"] for row in predicted] == [row["text"] for row in rows]
    scores = rouge([row["prediction"] for row in predicted], [row["summary"] for row in rows])
    assert round(scores["rougeL"], 4) == finished.metrics["predict_rougeL"]
    written = (home / "generated_predictions.txt").read_text(encoding="utf-8").splitlines()
    assert written == [row["prediction"] for row in predicted]


def rouge(written: list[str], expected: list[str]) -> dict[str, float]:
    """By Google's package, with its stemmer; the same sentences on lines of their own."""
    kinds = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = RougeScorer(kinds, use_stemmer=True)
    lines = [["\n".join(sentences(text)) for text in side] for side in (expected, written)]
    found = [scorer.score(truth, guess) for truth, guess in zip(*lines, strict=True)]
    return {kind: 100 * float(np.mean([one[kind].fmeasure for one in found])) for kind in kinds}


VARIANTS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "prefix": ("t5", ["--source_prefix", "summarize: "], {"prefix": "summarize: "}),
    "padded to the full length": (
        "bart",
        ["--pad_to_max_length", "true", "--num_beams", "2", "--val_max_target_length", "12"],
        {"pad": True, "beams": 2, "longest": (32, 16, 12)},
    ),
    "padding counts": ("t5", ["--ignore_pad_token_for_loss", "false"], {"ignore_padding": False}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_metrics_are_those_of_a_plain_program(variant: str) -> None:
    kind, more, options = VARIANTS[variant]
    train, dev = reports(24, 1), reports(8, 2)
    model = save_model(kind, pairs(reports(100)), Path("model"))
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("train.jsonl"), train), "--do_train"]
    words += ["--validation_file", write_rows(Path("dev.jsonl"), dev), "--do_eval", "--predict_with_generate"]
    finished = run("summarization", [*words, *SHORT, *more])
    theirs, metrics = plain_program(model, pairs(train), pairs(dev), rouge, **options)
    assert_same_run(finished.trainer, theirs)
    expected = measured(metrics)
    assert {"eval_rouge1", "eval_rougeLsum", "eval_gen_len", "eval_loss"} <= set(expected)
    assert expected["eval_rouge1"] > 0
    assert {name: finished.metrics[name] for name in expected} == expected
