"""Text classification: its sample, the same losses as a plain program of transformers, wrong rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from sklearn.metrics import f1_score, matthews_corrcoef

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.samples.sentences import SUBJECTS, build_sentence, create_random
from ostinato.tasks.tokenizers import BERT, train_tokenizer
from tests.support.apis import guest
from tests.support.task_runs import assert_same_run, measured, plain_arguments, read_rows, save_bert, write_rows

SHORT = [
    *("--max_seq_length", "32", "--num_train_epochs", "2", "--per_device_train_batch_size", "8"),
    *("--logging_steps", "1", "--learning_rate", "1e-3", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no"),
]


def sentences(count: int, seed: int = 0) -> list[dict[str, Any]]:
    numbers = create_random(seed)
    subjects = [list(SUBJECTS)[numbers.randrange(4)] for _ in range(count)]
    return [{"sentence": build_sentence(subject, numbers), "label": subject} for subject in subjects]


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    """A directory with a small BERT and its tokenizer."""
    tokenizer = train_tokenizer((row["sentence"] for row in sentences(200)), 400, BERT)
    return save_bert(tokenizer, shelf / "model")


def test_the_sample_is_learned() -> None:
    finished = run("text-classification", ["--sample"])
    assert finished.sample is not None
    assert finished.sample.is_beaten_by(finished.metrics), finished.metrics
    assert finished.metrics["eval_accuracy"] > 0.9
    home = Path("runs/text-classification")
    predicted, rows = read_rows(home / "predictions.jsonl"), read_rows(home / "data/test.jsonl")
    right = [one["prediction"] == row["label"] for one, row in zip(predicted, rows, strict=True)]
    assert np.mean(right) == finished.metrics["predict_accuracy"]
    assert json.loads((home / "all_results.json").read_text())["eval_accuracy"] == finished.metrics["eval_accuracy"]
    assert "text-classification" in (home / "README.md").read_text()


def plain_program(model: str, train: list[Any], dev: list[Any], *, label: str, pad: bool) -> Any:
    """What somebody who knows transformers would write for `sentence1`, `sentence2` or `sentence` and a label."""
    transformers.set_seed(7)
    is_number = isinstance(train[0][label], float)
    names = sorted({row[label] for row in train})
    config = transformers.AutoConfig.from_pretrained(model, num_labels=1 if is_number else len(names))
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(model, config=config)
    columns = [name for name in ("sentence", "sentence1", "sentence2") if name in train[0]]

    def features(row: dict[str, Any]) -> dict[str, Any]:
        texts = [row[name] for name in columns]
        made = tokenizer(*texts, truncation=True, max_length=32, padding="max_length" if pad else False)
        return {**made, "label": row[label] if is_number else names.index(row[label])}

    def metric(prediction: Any) -> dict[str, float]:
        if is_number:
            error = prediction.predictions[:, 0].astype(np.float64) - prediction.label_ids
            return {"mse": float((error**2).mean())}
        chosen = prediction.predictions.argmax(-1)
        if columns == ["sentence1", "sentence2"]:
            scores = [(chosen == prediction.label_ids).mean(), f1_score(prediction.label_ids, chosen)]
            return {"accuracy": scores[0], "f1": scores[1], "combined_score": np.mean(scores)}
        return {"accuracy": float((chosen == prediction.label_ids).mean())}

    with guest("transformers"):
        trainer = transformers.Trainer(
            model=network,
            args=plain_arguments(1e-3, num_train_epochs=2),
            train_dataset=[features(row) for row in train],
            eval_dataset=[features(row) for row in dev],
            processing_class=tokenizer,
            compute_metrics=metric,
            data_collator=transformers.default_data_collator if pad else None,
        )
        trainer.train()
        return trainer, trainer.evaluate()


def pairs(count: int, seed: int, *, numbers: bool) -> list[dict[str, Any]]:
    rows, other = sentences(count, seed), sentences(count, seed + 50)
    return [
        {
            "sentence1": a["sentence"],
            "sentence2": b["sentence"],
            "label": float(i % 5) / 2 if numbers else int(a["label"] == b["label"]),
        }
        for i, (a, b) in enumerate(zip(rows, other, strict=True))
    ]


KINDS = {
    "sentences": (sentences(40, 1), sentences(20, 2), []),
    "pairs as in MRPC": (pairs(40, 1, numbers=False), pairs(20, 2, numbers=False), ["--task_name", "mrpc"]),
    "numbers": (pairs(40, 1, numbers=True), pairs(20, 2, numbers=True), []),
}


@pytest.mark.parametrize("pad", [True, False], ids=["padded to the full length", "padded by batch"])
@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_metrics_are_those_of_a_plain_program(model: str, kind: str, pad: bool) -> None:
    train, dev, more = KINDS[kind]
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("train.jsonl"), train)]
    words += ["--validation_file", write_rows(Path("dev.jsonl"), dev), "--do_train", "--do_eval", *more, *SHORT]
    finished = run("glue", [*words, *([] if pad else ["--pad_to_max_length", "false"])])
    theirs, metrics = plain_program(model, train, dev, label="label", pad=pad)
    assert_same_run(finished.trainer, theirs)
    expected = measured(metrics)
    assert {name: finished.metrics[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_every_glue_task_has_its_metric(model: str) -> None:
    rows = [{"sentence": row["sentence"], "label": int(row["label"] == "music")} for row in sentences(40)]
    file = write_rows(Path("dev.jsonl"), rows)
    words = ["--task_name", "cola", "--model_name_or_path", model, "--validation_file", file, "--do_eval"]
    finished = run("glue", [*words, "--output_dir", "out", "--report_to", "none"])
    chosen = finished.trainer.predict(finished.trainer.eval_dataset).predictions.argmax(-1)
    expected = matthews_corrcoef([row["label"] for row in rows], chosen)
    assert finished.metrics["eval_matthews_correlation"] == pytest.approx(expected)


def test_multilabel_rows(model: str) -> None:
    rows = [{"text": row["sentence"], "label": [row["label"], "any"]} for row in sentences(40)]
    words = ["--train_file", write_rows(Path("rows.jsonl"), rows), "--test_file", "rows.jsonl", "--do_train"]
    finished = run("text-classification", [*words, "--do_predict", "--model_name_or_path", model, *SHORT])
    assert finished.trainer.model.config.problem_type == "multi_label_classification"
    assert all("any" in row["prediction"] for row in read_rows(Path("out/predictions.jsonl")))
    assert 0 < finished.metrics["predict_f1"] <= 1


def test_labels_keep_the_order_of_a_model_that_knows_them(model: str) -> None:
    file = write_rows(Path("rows.jsonl"), sentences(40))
    first = ["--train_file", file, "--do_train", "--model_name_or_path", model, *SHORT]
    trained = run("text-classification", first).trainer.model.config
    trained.id2label = dict(enumerate(reversed(trained.id2label.values())))
    trained.label2id = {name: number for number, name in trained.id2label.items()}
    trained.save_pretrained("out")
    again = run("text-classification", ["--validation_file", file, "--do_eval", "--model_name_or_path", "out", *SHORT])
    assert again.trainer.model.config.id2label == trained.id2label
    assert again.trainer.eval_dataset[0]["labels"] == trained.label2id[sentences(1)[0]["label"]]


@pytest.mark.parametrize("kind", ["one", "several", "a number"])
def test_a_trained_model_predicts_rows_without_labels(model: str, kind: str) -> None:
    labels = {
        "one": lambda label: label,
        "several": lambda label: [label, "any"],
        "a number": lambda label: len(label) / 2,
    }
    rows = [{"text": row["sentence"], "label": labels[kind](row["label"])} for row in sentences(40)]
    test = write_rows(Path("test.jsonl"), ({"text": row["text"]} for row in rows))
    both = ["--train_file", write_rows(Path("train.jsonl"), rows), "--test_file", test, "--do_train", "--do_predict"]
    run("text-classification", [*both, "--model_name_or_path", model, *SHORT])
    expected = read_rows(Path("out/predictions.jsonl"))
    later = ["--test_file", test, "--do_predict", "--model_name_or_path", "out", *SHORT, "--output_dir", "later"]
    run("text-classification", later)
    assert read_rows(Path("later/predictions.jsonl")) == expected


WRONG_ROWS = {
    "no such label": (
        [{"sentence": "a", "label": "sprt"}],
        "dev.jsonl, row 1, column 'label'.*sprt.*did you mean 'sport'",
    ),
    "no label": (
        [{"sentence": "a", "label": "sport"}, {"sentence": "b", "label": None}],
        "dev.jsonl, row 2.*no label",
    ),
    "no text": ([{"sentence": None, "label": "sport"}, {"sentence": "b", "label": "sport"}], "row 1.*'sentence'"),
    "no column": ([{"sentense": "a", "label": "sport"}], "dev.jsonl has no column 'sentence'.*'sentense'"),
    "no label column": ([{"sentence": "a", "labl": "sport"}], "no column 'label'.*--label_column_name.*'labl'"),
}


@pytest.mark.parametrize("mistake", WRONG_ROWS)
def test_wrong_rows_are_named(model: str, mistake: str) -> None:
    rows, message = WRONG_ROWS[mistake]
    words = ["--train_file", write_rows(Path("train.jsonl"), sentences(20)), "--do_train", "--do_eval"]
    words += ["--validation_file", write_rows(Path("dev.jsonl"), rows), "--model_name_or_path", model, *SHORT]
    with pytest.raises(DataError, match=f"(?s){message}"):
        run("text-classification", words)


def test_csv_with_columns_of_other_names(model: str) -> None:
    with Path("rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["id", "title", "body", "topic"])
        writer.writeheader()
        writer.writerows(
            {"id": i, "title": "News", "body": row["sentence"], "topic": row["label"]}
            for i, row in enumerate(sentences(20))
        )
    words = ["--train_file", "rows.csv", "--do_train", "--model_name_or_path", model, *SHORT]
    with pytest.raises(DataError, match="--label_column_name"):
        run("text-classification", words)
    finished = run(
        "text-classification", [*words, "--label_column_name", "topic", "--text_column_names", "title, body"]
    )
    shown = finished.trainer.processing_class.decode(finished.trainer.train_dataset[0]["input_ids"])
    assert shown.startswith("[CLS] News")
    with pytest.raises(ConfigError, match="GLUE has no task 'mrcp'"):
        run("glue", [*words, "--task_name", "mrcp"])
