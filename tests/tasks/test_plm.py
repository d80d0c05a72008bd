"""Permutation language modeling: its sample, the same losses as a plain program of transformers, odd lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers
from sklearn.metrics import accuracy_score

from ostinato import ConfigError
from ostinato.tasks import run
from ostinato.tasks.samples.plm_sample import STYLE
from tests.support.language_runs import SHORT, blocks_of, lines, make_model, plain_run, write_text
from tests.support.task_runs import assert_same_run, measured, read_rows


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    return make_model(shelf / "model", "xlnet", STYLE, "XLNetLMHeadModel")


def test_the_sample_is_learned() -> None:
    finished = run("plm", ["--sample"])
    assert finished.sample is not None
    assert finished.metrics["perplexity"] < finished.sample.baseline / 2, finished.metrics
    predicted = read_rows(Path("runs/plm/predictions.jsonl"))
    hidden = [token for row in predicted for token in row["hidden"]]
    right = sum(token["token"] == token["prediction"] for token in hidden) / len(hidden)
    assert right == pytest.approx(finished.metrics["predict_accuracy"])


def test_losses_and_metrics_are_those_of_a_plain_program(model: str) -> None:
    train, dev = lines(60, 1), lines(20, 2)
    words = ["--train_file", write_text(Path("train.txt"), train), "--do_train", "--do_eval"]
    words += ["--validation_file", write_text(Path("dev.txt"), dev), "--model_name_or_path", model]
    words += ["--max_seq_length", "33", "--num_train_epochs", "1", "--per_device_eval_batch_size", "32", *SHORT]
    finished = run("plm", words)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)

    def metric(output: Any) -> dict[str, float]:
        there = output.label_ids != -100
        return {"accuracy": accuracy_score(output.label_ids[there], output.predictions[there])}

    other, metrics = plain_run(
        lambda: transformers.XLNetLMHeadModel.from_pretrained(model),
        *(blocks_of(tokenizer, [text.rstrip("\n") for text in texts], 32) for texts in (train, dev)),
        collator=transformers.DataCollatorForPermutationLanguageModeling(tokenizer),
        metric=metric,
        num_train_epochs=1,
        per_device_eval_batch_size=32,
    )
    assert_same_run(finished.trainer, other)
    expected = measured(metrics)
    assert {name: finished.metrics[name] for name in expected} == expected


def test_lines_of_odd_length_are_padded(model: str) -> None:
    words = ["--validation_file", write_text(Path("text.txt"), lines(20)), "--do_eval", "--line_by_line"]
    finished = run("plm", [*words, "--max_seq_length", "32", "--model_name_or_path", model, *SHORT])
    rows, pad = finished.trainer.eval_dataset["input_ids"][:], finished.trainer.processing_class.pad_token_id
    assert {len(row) % 2 for row in rows} == {0}
    assert {row[0] == pad for row in rows} == {True, False}
    assert finished.metrics["perplexity"] > 1


def test_the_tokenizer_needs_a_mask_token(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", "xlnet", STYLE, "XLNetLMHeadModel", mask_token=None)
    words = ["--validation_file", write_text(Path("text.txt"), lines(20)), "--do_eval", *SHORT]
    with pytest.raises(ConfigError, match="has no mask token"):
        run("plm", [*words, "--model_name_or_path", model])
