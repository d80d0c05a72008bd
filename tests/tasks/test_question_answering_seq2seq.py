"""Answers that are written: the sample, losses and answers of a plain program, columns of other names, wrong rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.samples.question_answering_sample import build_question
from ostinato.tasks.samples.sentences import create_random
from ostinato.tasks.tokenizers import T5, train_tokenizer
from tests.support.apis import guest
from tests.support.question_reference import squad_by_hand
from tests.support.task_runs import assert_same_run, measured, plain_arguments, read_rows, write_rows

SHORT = [
    *("--max_seq_length", "40", "--max_answer_length", "6", "--num_train_epochs", "2", "--logging_steps", "1"),
    *("--per_device_train_batch_size", "8", "--learning_rate", "2e-3", "--predict_with_generate"),
    *("--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no"),
]


def questions(count: int, seed: int = 0) -> list[dict[str, Any]]:
    numbers = create_random(seed)
    return [build_question(f"{seed}-{n}", numbers, names=4) for n in range(count)]


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    """A directory with a small T5 and its tokenizer."""
    texts = [f"question: {row['question']} context: {row['context']}" for row in questions(100)]
    tokenizer = train_tokenizer(texts, 200, T5)
    config = transformers.T5Config(
        vocab_size=len(tokenizer),
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=tokenizer.pad_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    transformers.set_seed(3)
    transformers.T5ForConditionalGeneration(config).save_pretrained(shelf / "model")
    tokenizer.save_pretrained(shelf / "model")
    return str(shelf / "model")


def test_the_sample_is_learned() -> None:
    finished = run("question-answering-seq2seq", ["--sample"])
    assert finished.sample is not None
    assert finished.sample.is_beaten_by(finished.metrics), finished.metrics
    assert finished.metrics["eval_exact_match"] > 50
    home = Path("runs/question-answering-seq2seq")
    predicted, rows = read_rows(home / "predictions.jsonl"), read_rows(home / "data/test.jsonl")
    right = [one["prediction"] in row["answers"]["text"] for one, row in zip(predicted, rows, strict=True)]
    assert 100 * np.mean(right) == pytest.approx(finished.metrics["predict_exact_match"])
    assert json.loads((home / "predict_predictions.json").read_text(encoding="utf-8")) == {
        one["id"]: one["prediction"] for one in predicted
    }


def plain_program(model: str, train: list[Any], dev: list[Any], *, pad: bool, beams: int) -> Any:
    """What somebody who knows transformers would write."""
    transformers.set_seed(7)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    network = transformers.AutoModelForSeq2SeqLM.from_pretrained(model)
    padding = "max_length" if pad else False

    def features(row: dict[str, Any]) -> dict[str, Any]:
        text = f"question: {row['question']} context: {row['context']}"
        made = tokenizer(text, max_length=40, truncation=True, padding=padding)
        labels = tokenizer(text_target=row["answers"]["text"][0], max_length=6, truncation=True, padding=padding)
        return {**made, "labels": [one if one != tokenizer.pad_token_id else -100 for one in labels["input_ids"]]}

    def metric(prediction: Any) -> dict[str, float]:
        ids = np.where(prediction.predictions < 0, tokenizer.pad_token_id, prediction.predictions)
        written = [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
        return squad_by_hand(written, [row["answers"]["text"] for row in dev])

    with guest("transformers"):
        trainer = transformers.Seq2SeqTrainer(
            model=network,
            args=plain_arguments(
                2e-3,
                transformers.Seq2SeqTrainingArguments,
                num_train_epochs=2,
                eval_strategy="epoch",
                predict_with_generate=True,
                generation_max_length=6,
                generation_num_beams=beams,
            ),
            train_dataset=[features(row) for row in train],
            eval_dataset=[features(row) for row in dev],
            processing_class=tokenizer,
            compute_metrics=metric,
            data_collator=transformers.DataCollatorForSeq2Seq(tokenizer, model=network),
        )
        trainer.train()
        return trainer, trainer.evaluate()


@pytest.mark.parametrize(("pad", "beams"), [(True, 1), (False, 2)])
def test_losses_and_answers_are_those_of_a_plain_program(model: str, pad: bool, beams: int) -> None:
    train, dev = questions(24, 1), questions(8, 2)  # one batch: of several, ours is the mean over all tokens
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("train.jsonl"), train)]
    words += ["--validation_file", write_rows(Path("dev.jsonl"), dev), "--do_train", "--do_eval", *SHORT]
    words += ["--pad_to_max_length", str(pad), "--num_beams", str(beams), "--eval_strategy", "epoch"]
    words += ["--isolate_rng", "false"]  # as transformers does, whose evaluations draw from training's random numbers
    finished = run("run_seq2seq_qa.py", words)
    theirs, metrics = plain_program(model, train, dev, pad=pad, beams=beams)
    assert_same_run(finished.trainer, theirs)
    expected = measured(metrics)
    assert {name: finished.metrics[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_columns_of_other_names(model: str) -> None:
    rows = [
        {"q": row["question"], "about": row["context"], "a": [{"text": row["answers"]["text"][0]}]}
        for row in questions(8)
    ]
    file = write_rows(Path("rows.jsonl"), rows)
    words = [
        "--model_name_or_path",
        model,
        "--validation_file",
        file,
        "--test_file",
        file,
        "--do_eval",
        "--do_predict",
    ]
    with pytest.raises(DataError, match=r"rows.jsonl has no column 'question'\n.*\n.*--question_column"):
        run("question-answering-seq2seq", [*words, *SHORT])
    words += ["--question_column", "q", "--context_column", "about", "--answer_column", "a"]
    finished = run("question-answering-seq2seq", [*words, *SHORT, "--val_max_answer_length", "3", "--doc_stride", "8"])
    assert finished.metrics["predict_f1"] == finished.metrics["eval_f1"]
    assert finished.trainer.args.generation_max_length == 3
    assert [row["question"] for row in read_rows(Path("out/predictions.jsonl"))] == [row["q"] for row in rows]


def test_answers_have_to_be_generated(model: str) -> None:
    file = write_rows(Path("rows.jsonl"), questions(8))
    words = ["--model_name_or_path", model, "--validation_file", file, "--do_eval", "--output_dir", "out"]
    finished = run("question-answering-seq2seq", [*words, "--report_to", "none"])
    assert "eval_loss" in finished.metrics and "eval_f1" not in finished.metrics
    with pytest.raises(ConfigError, match="add --predict_with_generate"):
        run("question-answering-seq2seq", [*words, "--do_predict", "--test_file", file])


def test_rows_without_an_answer_column_or_text_are_named(model: str) -> None:
    rows = questions(3)
    words = ["--model_name_or_path", model, "--do_train", *SHORT, "--train_file"]
    missing = [{name: row[name] for name in ("context", "question")} for row in rows]
    with pytest.raises(DataError, match=r"missing.jsonl has no column 'answers'\n.*\n.*--answer_column"):
        run("question-answering-seq2seq", [*words, write_rows(Path("missing.jsonl"), missing)])
    rows[1]["answers"] = {"text": [None], "answer_start": [0]}
    with pytest.raises(DataError, match=r"empty.jsonl, row 2, column 'answers': these are not answers"):
        run("question-answering-seq2seq", [*words, write_rows(Path("empty.jsonl"), rows)])
