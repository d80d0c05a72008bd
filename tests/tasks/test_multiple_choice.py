"""Multiple choice: its sample, the same losses as a plain program of transformers, wrong rows."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.samples.sentences import SUBJECTS, build_sentence, create_random, pick
from ostinato.tasks.tokenizers import BERT, train_tokenizer
from tests.support.apis import guest
from tests.support.task_runs import assert_same_run, measured, plain_arguments, read_rows, save_bert, write_rows

SHORT = [
    *("--num_train_epochs", "2", "--per_device_train_batch_size", "8", "--logging_steps", "1"),
    *("--learning_rate", "1e-2", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no"),
]


def choices(count: int, seed: int = 0, *, endings: int = 4) -> list[dict[str, Any]]:
    numbers, rows = create_random(seed), []
    for _ in range(count):
        label = numbers.randrange(endings)
        words = [pick(SUBJECTS["music" if i == label else "sport"], numbers) for i in range(endings)]
        texts = {f"ending{i}": f"hears the {word}." for i, word in enumerate(words)}
        rows.append({"sent1": build_sentence("music", numbers), "sent2": "Everybody", **texts, "label": label})
    return rows


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    texts = (value for row in choices(100) for value in row.values() if isinstance(value, str))
    tokenizer = train_tokenizer(texts, 300, BERT)
    return save_bert(tokenizer, shelf / "model", max_position_embeddings=80)


def test_the_sample_is_learned() -> None:
    finished = run("multiple-choice", ["--sample"])
    assert finished.sample is not None
    assert finished.sample.baseline < 0.35
    assert finished.metrics["eval_accuracy"] > finished.sample.baseline + 0.5
    home = Path("runs/multiple-choice")
    predicted, rows = read_rows(home / "predictions.jsonl"), read_rows(home / "data/test.jsonl")
    right = [one["prediction"] == row["label"] for one, row in zip(predicted, rows, strict=True)]
    assert np.mean(right) == pytest.approx(finished.metrics["predict_accuracy"])
    for one, row in zip(predicted, rows, strict=True):
        assert one["ending"] == row[f"ending{one['prediction']}"]


def plain_program(model: str, train: list[Any], dev: list[Any], *, pad: bool, length: int | None) -> Any:
    """What somebody who knows transformers would write for a row of SWAG."""
    transformers.set_seed(7)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    network = transformers.AutoModelForMultipleChoice.from_pretrained(model)
    endings = [name for name in train[0] if name.startswith("ending")]

    def features(row: dict[str, Any]) -> dict[str, Any]:
        made = tokenizer(
            [row["sent1"]] * len(endings),
            [f"{row['sent2']} {row[name]}" for name in endings],
            truncation=length is not None,
            max_length=length,
            padding="max_length" if pad else False,
        )
        return {**made, "label": row["label"]}

    def metric(prediction: Any) -> dict[str, float]:
        return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}

    with guest("transformers"):
        trainer = transformers.Trainer(
            model=network,
            args=plain_arguments(1e-2, num_train_epochs=2),
            train_dataset=[features(row) for row in train],
            eval_dataset=[features(row) for row in dev],
            processing_class=tokenizer,
            compute_metrics=metric,
            data_collator=transformers.default_data_collator
            if pad
            else transformers.DataCollatorForMultipleChoice(tokenizer=tokenizer),
        )
        trainer.train()
        return trainer, trainer.evaluate()


VARIANTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "padded by batch": ([], {"pad": False, "length": None}),
    "padded to the full length": (
        ["--max_seq_length", "40", "--pad_to_max_length"],
        {"pad": True, "length": 40},
    ),
    "cut": (["--max_seq_length", "16"], {"pad": False, "length": 16}),
}


@pytest.mark.parametrize("endings", [4, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_metrics_are_those_of_a_plain_program(model: str, variant: str, endings: int) -> None:
    more, options = VARIANTS[variant]
    train, dev = choices(40, 1, endings=endings), choices(21, 2, endings=endings)
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("train.jsonl"), train)]
    words += ["--validation_file", write_rows(Path("dev.jsonl"), dev), "--do_train", "--do_eval", *more, *SHORT]
    finished = run("swag", words)
    theirs, metrics = plain_program(model, train, dev, **options)
    assert_same_run(finished.trainer, theirs)
    expected = measured(metrics)
    assert {name: finished.metrics[name] for name in expected} == expected


def run_with_log(caplog: pytest.LogCaptureFixture, words: list[str]) -> tuple[Any, list[str]]:
    logger = logging.getLogger("ostinato")
    logger.addHandler(caplog.handler)
    try:
        return run("swag", words), [record.getMessage() for record in caplog.records]
    finally:
        logger.removeHandler(caplog.handler)


def test_rows_are_truncated_to_the_positions_of_the_model(model: str, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{**row, "sent1": row["sent1"] * (9 if i == 2 else 1)} for i, row in enumerate(choices(8))]
    words = ["--train_file", write_rows(Path("rows.jsonl"), rows), "--do_train", "--model_name_or_path", model, *SHORT]
    finished, lines = run_with_log(caplog, words)
    longest = max(len(ids) for row in finished.trainer.train_dataset["input_ids"] for ids in row)
    assert longest == 80 == finished.trainer.model.config.max_position_embeddings
    assert "train: 1 of 8 rows are longer than 80 tokens (--max_seq_length) and were truncated" in lines
    assert finished.trainer.train_dataset.column_names[-1] == "labels"
    _, lines = run_with_log(caplog, [*words, "--max_seq_length", "200"])
    assert "--max_seq_length 200: the model has 80 positions, to which rows are truncated" in lines


def test_rows_to_predict_need_no_label_and_endings_no_beginning(model: str) -> None:
    bare = [{name: value for name, value in row.items() if name != "sent2"} for row in choices(8)]
    unlabelled = [{**row, "label": -1} for row in bare]
    words = ["--train_file", write_rows(Path("train.jsonl"), bare), "--do_train", "--model_name_or_path", model]
    words += ["--test_file", write_rows(Path("test.jsonl"), unlabelled), "--do_predict", *SHORT]
    finished = run("swag", words)
    assert not [name for name in finished.metrics if name in ("predict_accuracy", "predict_loss")]
    assert [row["sent1"] for row in read_rows(Path("out/predictions.jsonl"))] == [row["sent1"] for row in bare]
    tokens = finished.trainer.processing_class.decode(finished.trainer.train_dataset[0]["input_ids"][1])
    assert tokens.endswith(f"[SEP] {bare[0]['ending1']} [SEP]")


GOOD = choices(1)[0]
WRONG_ROWS = {
    "no such ending": (
        [GOOD, {**GOOD, "label": 4}],
        "dev.jsonl, row 2, column 'label'.*the numbers are 0 to 3.*value is 4",
    ),
    "no label": ([GOOD, {**GOOD, "label": None}], "row 2, column 'label'"),
    "a name for a label": ([{**GOOD, "label": "ending1"}], "row 1, column 'label'.*0 to 3"),
    "an ending less": ([GOOD, {**GOOD, "ending3": None}], "row 2, column 'ending3': there is no ending.*has 4"),
    "an ending more": ([{**GOOD, "ending4": "sings."}], "dev.jsonl has 5 endings for a row.*have 4"),
    "no context": ([{**GOOD, "sent1": None}, GOOD], "row 1, column 'sent1'"),
    "no column of context": ([{k: v for k, v in GOOD.items() if k != "sent1"}], "dev.jsonl has no column 'sent1'"),
    "no column of labels": ([{k: v for k, v in GOOD.items() if k != "label"}], "dev.jsonl has no column 'label'"),
}


@pytest.mark.parametrize("mistake", WRONG_ROWS)
def test_wrong_rows_are_named(model: str, mistake: str) -> None:
    rows, message = WRONG_ROWS[mistake]
    words = ["--train_file", write_rows(Path("train.jsonl"), choices(8)), "--do_train", "--do_eval"]
    words += ["--validation_file", write_rows(Path("dev.jsonl"), rows), "--model_name_or_path", model, *SHORT]
    with pytest.raises(DataError, match=f"(?s){message}"):
        run("swag", words)


def test_a_choice_has_two_endings(model: str) -> None:
    rows = [{name: value for name, value in GOOD.items() if name not in ("ending1", "ending2", "ending3")}]
    words = [
        "--train_file",
        write_rows(Path("train.jsonl"), rows),
        "--do_train",
        "--model_name_or_path",
        model,
        *SHORT,
    ]
    with pytest.raises(DataError, match=r"train\.jsonl has one ending to choose from"):
        run("swag", words)


def test_a_tokenizer_without_pad_token_is_refused(model: str) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = None
    tokenizer.save_pretrained("bare")
    words = ["--train_file", write_rows(Path("train.jsonl"), choices(8)), "--do_train", "--tokenizer_name", "bare"]
    with pytest.raises(ConfigError, match="has no pad token"):
        run("swag", [*words, "--model_name_or_path", model, *SHORT])
