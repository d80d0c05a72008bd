"""Masked language modeling: its sample, the same losses as a plain program of transformers, wrong input."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from sklearn.metrics import accuracy_score

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.tokenizers import BERT, GPT
from tests.support.language_runs import SHORT, blocks_of, lines, make_model, plain_run, write_text
from tests.support.task_runs import assert_same_run, measured, read_rows


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    return make_model(shelf / "model", "bert", BERT, "BertForMaskedLM")


def test_the_sample_is_learned() -> None:
    finished = run("mlm", ["--sample"])
    assert finished.sample is not None
    assert finished.metrics["perplexity"] < finished.sample.baseline / 4, finished.metrics
    predicted = read_rows(Path("runs/mlm/predictions.jsonl"))
    texts = Path("runs/mlm/data/test.txt").read_text(encoding="utf-8").splitlines()
    assert [row["text"].split()[1] for row in predicted] == [text.split()[0] for text in texts]
    hidden = [token for row in predicted for token in row["hidden"]]
    right = sum(token["token"] == token["prediction"] for token in hidden) / len(hidden)
    assert right == pytest.approx(finished.metrics["predict_accuracy"])
    mean = sum(row["loss"] * len(row["hidden"]) for row in predicted if row["hidden"]) / len(hidden)
    assert mean == pytest.approx(finished.metrics["predict_loss"], rel=1e-5)


def hidden_token_accuracy(output: Any) -> dict[str, float]:
    there = output.label_ids != -100
    return {"accuracy": accuracy_score(output.label_ids[there], output.predictions[there])}


def theirs(model: str, train: list[str], dev: list[str], *, by_line: bool, pad: bool, **arguments: Any) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)

    def features(texts: list[str]) -> list[Any]:
        if not by_line:
            return blocks_of(tokenizer, texts, 32)
        padding = "max_length" if pad else False
        made = [tokenizer(text, truncation=True, max_length=32, padding=padding) for text in texts if text]
        return [{name: row[name] for name in ("input_ids", "attention_mask")} for row in made]

    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    return plain_run(
        lambda: transformers.AutoModelForMaskedLM.from_pretrained(model),
        *(features([text.rstrip("\n") for text in texts]) for texts in (train, dev)),
        collator=collator,
        metric=hidden_token_accuracy,
        **arguments,
    )


WAYS = {"blocks": [], "line by line": ["--line_by_line"], "padded lines": ["--line_by_line", "--pad_to_max_length"]}


@pytest.mark.parametrize("way", WAYS)
def test_losses_and_metrics_are_those_of_a_plain_program(model: str, way: str) -> None:
    train, dev = ["\n", *lines(60, 1)], lines(20, 2)
    words = ["--train_file", write_text(Path("train.txt"), train), "--do_train", "--do_eval", *WAYS[way]]
    words += ["--validation_file", write_text(Path("dev.txt"), dev), "--model_name_or_path", model]
    words += ["--max_seq_length", "32", "--num_train_epochs", "1", "--per_device_eval_batch_size", "32", *SHORT]
    finished = run("mlm", words)
    by_line, pad = "--line_by_line" in words, "--pad_to_max_length" in words
    other, metrics = theirs(
        model, train, dev, by_line=by_line, pad=pad, num_train_epochs=1, per_device_eval_batch_size=32
    )
    assert_same_run(finished.trainer, other)
    expected = measured(metrics)
    assert {name: finished.metrics[name] for name in expected} == expected
    assert finished.metrics["perplexity"] == math.exp(metrics["eval_loss"])


def test_with_several_batches_the_loss_of_evaluation_is_weighted_by_hidden_tokens(model: str) -> None:
    """transformers averages the means of batches, so that its perplexity depends on the size of a batch."""
    dev = lines(40, 2)
    words = ["--validation_file", write_text(Path("dev.txt"), dev), "--do_eval", "--line_by_line"]
    words += ["--model_name_or_path", model, "--max_seq_length", "32", *SHORT]
    batches: list[Any] = []
    finished = run("mlm", words)
    collator = finished.trainer.data_collator
    finished.trainer.data_collator = lambda rows: batches.append(collator(rows)) or batches[-1]
    torch.manual_seed(1)
    metrics = finished.trainer.evaluate()
    with torch.no_grad():
        losses = [float(finished.trainer.model.eval()(**batch).loss) for batch in batches]
    counts = [int((batch["labels"] != -100).sum()) for batch in batches]
    assert len(set(counts)) > 1
    weighted = sum(loss * count for loss, count in zip(losses, counts, strict=True)) / sum(counts)
    assert metrics["eval_loss"] == pytest.approx(weighted, rel=1e-6)


WRONG = {
    "no line": (["\n"] * 5, ["--line_by_line"], DataError, "text.txt holds no text"),
    "too long a block": (["Anna.\n"], ["--max_seq_length", "512"], DataError, "no block of 512.*--max_seq_length"),
    "more than the model's positions": (["a\n"], ["--max_seq_length", "513"], ConfigError, "model has 512 positions"),
    "packing": (["a\n"], ["--packing"], ConfigError, "--packing with mlm"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_input_is_named(model: str, mistake: str) -> None:
    texts, more, kind, message = WRONG[mistake]
    words = ["--validation_file", write_text(Path("text.txt"), texts), "--do_eval", "--model_name_or_path", model]
    with pytest.raises(kind, match=f"(?s){message}"):
        run("mlm", [*words, *more, *SHORT])


def test_tokenizers_without_mask_or_pad_token_are_errors(model: str, tmp_path: Path) -> None:
    words = ["--validation_file", write_text(Path("text.txt"), lines(20)), "--do_eval", *SHORT]
    causal = make_model(tmp_path / "causal", "gpt2", GPT, "GPT2LMHeadModel")
    with pytest.raises(ConfigError, match=r"(?s)has no mask token.*hides tokens behind it"):
        run("mlm", [*words, "--model_name_or_path", model, "--tokenizer_name", causal])
    bare = make_model(tmp_path / "bare", "bert", BERT, "BertForMaskedLM", pad_token=None)
    with pytest.raises(ConfigError, match="no pad token"):
        run("mlm", [*words, "--model_name_or_path", bare, "--line_by_line"])


def test_a_stopped_run_resumes_bit_for_bit(model: str) -> None:
    """Masks are drawn at random, and everything is rehearsed before the first step, also of a resumed run."""
    words = ["--train_file", write_text(Path("train.txt"), lines(60, 1)), "--do_train", "--model_name_or_path", model]
    words += [*SHORT, "--max_seq_length", "32", "--max_steps", "6", "--save_strategy", "steps", "--save_steps", "2"]
    words += ["--line_by_line"]
    whole = run("mlm", [*words, "--output_dir", "whole"]).trainer
    assert whole.args.rehearse
    for step in (2, 4):
        checkpoint = ["--resume_from_checkpoint", f"whole/checkpoint-{step}"]
        resumed = run("mlm", [*words, "--output_dir", f"from-{step}", *checkpoint]).trainer
        assert_same_run(resumed, whole)
