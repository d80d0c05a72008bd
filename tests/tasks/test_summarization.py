"""Summarization: its sample, the same losses and ROUGE as a plain program of transformers, wrong rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from rouge_score.rouge_scorer import RougeScorer

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.samples.sentences import build_report_and_summary, create_random
from ostinato.tasks.summarization import split_sentences
from tests.support.seq2seq_runs import SHORT, plain_program, save_model
from tests.support.task_runs import assert_same_run, measured, read_rows, write_rows


def reports(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Texts of three or six sentences, and summaries of one or two."""
    numbers, rows = create_random(seed), []
    for row in range(count):
        parts = [build_report_and_summary(numbers) for _ in range(1 + row % 2)]
        texts, summaries = zip(*parts, strict=True)
        rows.append({"text": " ".join(texts), "summary": ". ".join(summaries) + "."})
    return rows


def pairs(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["text"], row["summary"]) for row in rows]


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    return save_model("bart", pairs(reports(100)), shelf / "model")


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
    lines = [["\n".join(split_sentences(text)) for text in side] for side in (expected, written)]
    found = [scorer.score(truth, guess) for truth, guess in zip(*lines, strict=True)]
    return {kind: 100 * float(np.mean([one[kind].fmeasure for one in found])) for kind in kinds}


VARIANTS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "prefix": (
        "t5",
        ["--source_prefix", "summarize: ", "--max_target_length", "30"],
        {"prefix": "summarize: ", "longest": (32, 30, 30)},
    ),
    "padded to the full length": (
        "bart",
        ["--pad_to_max_length", "true", "--num_beams", "2", "--val_max_target_length", "12"],
        {"pad": True, "beams": 2, "longest": (32, 16, 12)},
    ),
    "padding counts": (
        "bart",
        ["--ignore_pad_token_for_loss", "false"],
        {"ignore_padding": False},
    ),
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


def command(model: str, train: list[dict[str, Any]], dev: list[dict[str, Any]], *more: str) -> list[str]:
    words = ["--train_file", write_rows(Path("train.jsonl"), train), "--do_train", "--do_eval"]
    words += ["--validation_file", write_rows(Path("dev.jsonl"), dev), "--model_name_or_path", model]
    return [*words, *SHORT, "--num_train_epochs", "1", *more]


def test_rows_without_a_text_are_left_out_and_named(model: str, caplog: pytest.LogCaptureFixture) -> None:
    rows = reports(8)
    rows[2] = {"text": rows[2]["text"], "summary": " "}
    rows[5] = {"text": None, "summary": "Anna won a race."}
    finished = run("summarization", command(model, rows, reports(8)))
    assert len(finished.trainer.train_dataset) == finished.metrics["train_samples"] == 6
    assert "train.jsonl: 2 of 8 rows are dropped" in caplog.text
    assert "the first is row 3, column 'summary', without 'summary'" in caplog.text
    with pytest.raises(DataError, match="row 1, column 'summary': no text for 'summary', as in every row"):
        run("summarization", command(model, [{**row, "summary": ""} for row in rows], reports(8)))


WRONG_ROWS = {
    "no column": ([{"body": "a", "title": 1}], "has no column 'summary'.*'body', 'title'.*--summary_column"),
    "a number": ([{"text": "a", "summary": "b"}, {"text": "a", "summary": 3}], "row 2, column 'summary'.*not a text"),
    "other rows to evaluate": (None, "dev.jsonl has no column 'summary'.*did you mean 'sumary'"),
}


@pytest.mark.parametrize("mistake", WRONG_ROWS)
def test_wrong_rows_are_named(model: str, mistake: str) -> None:
    rows, message = WRONG_ROWS[mistake]
    dev = [{"text": "a", "sumary": "b"}] if rows is None else reports(8)
    with pytest.raises(DataError, match=f"(?s){message}"):
        run("summarization", command(model, rows or reports(8), dev))


WRONG_OPTIONS = {
    "--max_target_length 65": "--max_target_length 65 is more.*64 positions.*--max_target_length 64",
    "--generation_max_length 65": "--generation_max_length 65 is more than the model can generate",
    "--forced_bos_token <S>": "--forced_bos_token <S>: the tokenizer has no such token.*did you mean '<s>'",
    "--max_source_length 100 --resize_position_embeddings false": "--max_source_length 100 is more.*64 positions",
    "--max_source_length 100 --resize_position_embeddings true": "has 64 positions and cannot be extended",
    "--do_predict --test_file dev.jsonl": "--do_predict without --predict_with_generate",
    "--summary_column headline": "has no column 'headline'.*--summary_column",
}


@pytest.mark.parametrize("options", WRONG_OPTIONS)
def test_wrong_options_are_refused_before_training(model: str, options: str) -> None:
    with pytest.raises((ConfigError, DataError), match=f"(?s){WRONG_OPTIONS[options]}"):
        run("summarization", command(model, reports(8), reports(8), *options.split()))


def test_unsuitable_models_and_tokenizers_are_errors(tmp_path: Path, model: str) -> None:
    transformers.GPT2Config(n_layer=1, n_head=1, n_embd=8).save_pretrained("gpt")
    with pytest.raises(
        ConfigError, match=r"(?s)type .gpt2. cannot be trained for summarization.*not an encoder-decoder"
    ):
        run("summarization", command(model, reports(8), reports(8), "--config_name", "gpt"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = None
    tokenizer.save_pretrained("unpadded")
    with pytest.raises(ConfigError, match="the tokenizer of unpadded has no pad token"):
        run("summarization", command(model, reports(8), reports(8), "--tokenizer_name", "unpadded"))


def test_truncated_texts_are_counted(model: str, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"text": "In Riga.", "summary": "Anna."}, *reports(6)[1::2]]
    finished = run("summarization", command(model, rows, rows[:1], "--max_source_length", "100"))
    assert "texts are truncated to 64 tokens, the number of positions of the model" in caplog.text
    longest = max(len(row["input_ids"]) for row in finished.trainer.train_dataset)
    assert longest <= 64
    run("summarization", command(model, rows, rows[:1], "--max_source_length", "20", "--max_target_length", "8"))
    assert (
        "train: truncated 3 sources to 20 tokens (--max_source_length) "
        "and 3 targets to 8 (--max_target_length), of 4 rows" in caplog.text
    )
    assert "validation: truncated" not in caplog.text
    assert "only the loss is measured" in caplog.text


def test_texts_without_summaries_are_summarized(model: str) -> None:
    rows = [{"text": row["text"]} for row in reports(5)]
    words = ["--test_file", write_rows(Path("test.jsonl"), rows), "--do_predict", "--predict_with_generate"]
    finished = run("summarization", [*words, "--model_name_or_path", model, *SHORT])
    predicted = read_rows(Path("out/predictions.jsonl"))
    assert [set(row) for row in predicted] == [{"text", "prediction"}] * 5
    assert not any("rouge" in name or name.endswith("_loss") for name in finished.metrics)


def test_columns_are_found_by_name_and_position(model: str) -> None:
    known = [{"id": "7", "dialogue": row["text"], "summary": row["summary"]} for row in reports(8)]
    trainer = run("summarization", command(model, known, known)).trainer
    features = trainer.train_dataset
    assert trainer.processing_class.decode(features[0]["labels"], True) == known[0]["summary"]
    by_place = [{"number": 1, "words": row["text"], "gist": row["summary"]} for row in reports(8)]
    again = run("summarization", command(model, by_place, by_place)).trainer.train_dataset
    assert again[:] == features[:]
