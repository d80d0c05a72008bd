"""Question answering: its sample, the same losses and answers as a plain program of transformers, wrong rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.questions import answers_of
from ostinato.tasks.samples.question_answering_sample import build_question
from ostinato.tasks.samples.sentences import create_random
from ostinato.tasks.tokenizers import BERT, train_tokenizer
from tests.support.apis import guest
from tests.support.question_reference import best_by_hand, silence_by_hand, squad_by_hand
from tests.support.task_runs import assert_same_run, measured, plain_arguments, read_rows, save_bert, write_rows

SHORT = [
    *("--max_seq_length", "40", "--doc_stride", "8", "--num_train_epochs", "2", "--per_device_train_batch_size", "8"),
    *("--logging_steps", "1", "--learning_rate", "2e-3", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no"),
]


def questions(count: int, seed: int = 0, *, long: bool = False, silent: bool = False) -> list[dict[str, Any]]:
    """Rows; every other one is `long` enough for several windows, or without an answer (`silent`)."""
    numbers = create_random(seed)
    rows = [build_question(f"{seed}-{n}", numbers) for n in range(count)]
    for row in rows[::2] if long else []:
        before = " ".join(build_question("", numbers)["context"] for _ in range(4)) + " "
        row["context"], start = before + row["context"], row["answers"]["answer_start"][0]
        row["answers"] = {"text": row["answers"]["text"], "answer_start": [len(before) + start]}
    for row in rows[1::3] if silent else []:
        row["answers"] = {"text": [], "answer_start": []}
    return rows


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    """A directory with a small BERT and its tokenizer."""
    texts = [text for row in questions(200) for text in (row["question"], row["context"])]
    tokenizer = train_tokenizer(texts, 400, BERT)
    return save_bert(tokenizer, shelf / "model")


def test_the_sample_is_learned() -> None:
    finished = run("question-answering", ["--sample"])
    assert finished.sample is not None
    assert finished.sample.is_beaten_by(finished.metrics), finished.metrics
    assert finished.metrics["eval_exact_match"] > 80
    home = Path("runs/question-answering")
    predicted, rows = read_rows(home / "predictions.jsonl"), read_rows(home / "data/test.jsonl")
    assert [row["id"] for row in predicted] == [row["id"] for row in rows]
    right = [one["prediction"] in row["answers"]["text"] for one, row in zip(predicted, rows, strict=True)]
    assert 100 * np.mean(right) == pytest.approx(finished.metrics["predict_exact_match"])
    told = json.loads((home / "predict_predictions.json").read_text(encoding="utf-8"))
    assert told == {one["id"]: one["prediction"] for one in predicted}
    best = json.loads((home / "eval_nbest_predictions.json").read_text(encoding="utf-8"))
    assert {name: listed[0]["text"] for name, listed in best.items()} == json.loads(
        (home / "eval_predictions.json").read_text(encoding="utf-8")
    )
    assert not (home / ".rehearsal").exists()


# ---- the same as a plain program ------------------------------------------------------------------------------------


def plain_features(tokenizer: Any, row: dict[str, Any], *, pad: bool, learns: bool) -> list[dict[str, Any]]:
    """The windows of one row."""
    made = tokenizer(
        row["question"],
        row["context"],
        truncation="only_second",
        max_length=40,
        stride=8,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length" if pad else False,
    )
    features = []
    for number, ids in enumerate(made["input_ids"]):
        parts, places = made.sequence_ids(number), made["offset_mapping"][number]
        feature = {name: made[name][number] for name in tokenizer.model_input_names}
        if learns:
            feature["start_positions"] = feature["end_positions"] = ids.index(tokenizer.cls_token_id)
            texts, starts = answers_of(row["answers"])
            inside = [token for token, part in enumerate(parts) if part == 1]
            if texts:
                begin, end = starts[0], starts[0] + len(texts[0])
                holds = [token for token in inside if places[token][0] < end and places[token][1] > begin]
                if holds and places[inside[0]][0] <= begin and places[inside[-1]][1] >= end:
                    feature["start_positions"], feature["end_positions"] = holds[0], holds[-1]
        else:
            feature["places"] = [place if part == 1 else None for place, part in zip(places, parts, strict=True)]
        features.append(feature)
    return features


def plain_program(model: str, train: list[Any], dev: list[Any], *, pad: bool, silent: bool) -> Any:
    """What somebody who knows transformers would write: a trainer, and answers looked for one by one."""
    transformers.set_seed(7)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    network = transformers.AutoModelForQuestionAnswering.from_pretrained(model)
    windows = [plain_features(tokenizer, row, pad=pad, learns=False) for row in dev]
    with guest("transformers"):
        trainer = transformers.Trainer(
            model=network,
            args=plain_arguments(2e-3, num_train_epochs=2),
            train_dataset=[each for row in train for each in plain_features(tokenizer, row, pad=pad, learns=True)],
            processing_class=tokenizer,
            data_collator=transformers.default_data_collator if pad else None,
        )
        trainer.train()
        shown = [{name: each[name] for name in tokenizer.model_input_names} for row in windows for each in row]
        starts, ends = trainer.predict(shown).predictions
        answers, odds, number = [], {}, 0
        for row, features in zip(dev, windows, strict=True):
            seen = [(starts[number + n], ends[number + n], each["places"]) for n, each in enumerate(features)]
            number += len(features)
            best = best_by_hand(row["context"], seen, n_best=20, longest=30)
            odds[row["id"]] = silence_by_hand(seen, [0] * len(seen)) - (best[0][1] if best else 0)
            says_nothing = not best or (silent and odds[row["id"]] > 0)
            answers.append("" if says_nothing else best[0][0])
        metrics = squad_by_hand(answers, [row["answers"]["text"] for row in dev])
        names = {"exact_match": "exact"} if silent else {}
        trainer.log({f"eval_{names.get(name, name)}": value for name, value in metrics.items()})
    return trainer, dict(zip([row["id"] for row in dev], answers, strict=True)), odds


KINDS = {
    "padded to the full length": ({}, True),
    "padded by batch": ({}, False),
    "windows": ({"long": True}, True),
    "windows padded by batch, without an answer": ({"long": True, "silent": True}, False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_answers_are_those_of_a_plain_program(model: str, kind: str) -> None:
    options, pad = KINDS[kind]
    train, dev = questions(24, 1, **options), questions(16, 2, **options)
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("train.jsonl"), train)]
    words += ["--validation_file", write_rows(Path("dev.jsonl"), dev), "--do_train", "--do_eval", *SHORT]
    silent = "silent" in options
    words += ["--version_2_with_negative"] if silent else []
    finished = run("run_qa.py", [*words, "--pad_to_max_length", str(pad)])
    theirs, answers, odds = plain_program(model, train, dev, pad=pad, silent=silent)
    assert json.loads(Path("out/eval_predictions.json").read_text(encoding="utf-8")) == answers
    if silent:
        assert json.loads(Path("out/eval_null_odds.json").read_text()) == pytest.approx(odds)
    told = measured(theirs.state.log_history[-1])
    last = finished.trainer.state.log_history[-1]
    for name in [name for name in last if name not in told and name != "epoch"]:
        last.pop(name)  # of SQuAD 2.0 there are more numbers
    assert_same_run(finished.trainer, theirs)
    windows = sum(len(plain_features(finished.trainer.processing_class, row, pad=pad, learns=True)) for row in train)
    assert finished.metrics["train_samples"] == windows
    assert windows > len(train) or "long" not in options


def test_the_best_model_is_chosen_by_answers(model: str) -> None:
    """Evaluations in training, f1 as what decides, early stopping and the best model at the end."""
    file = write_rows(Path("rows.jsonl"), questions(40))
    words = ["--model_name_or_path", model, "--train_file", file, "--validation_file", file, "--do_train", "--do_eval"]
    words += [*SHORT, "--num_train_epochs", "4", "--eval_strategy", "epoch", "--save_strategy", "epoch"]
    words += ["--load_best_model_at_end", "--metric_for_best_model", "f1", "--learning_rate", "1e-2"]
    finished = run("question-answering", words)
    history = [entry["eval_f1"] for entry in finished.trainer.state.log_history if "eval_f1" in entry]
    assert finished.trainer.state.best_metric == max(history[:4])
    assert history[-1] == max(history[:4]), "the best model is evaluated at the end"


# ---- files ----------------------------------------------------------------------------------------------------------


def nested(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """As SQuAD's own files have it: two articles, a paragraph for each question."""
    paragraphs = [
        {
            "context": row["context"],
            "qas": [
                {
                    "id": row["id"],
                    "question": row["question"],
                    "is_impossible": not row["answers"]["text"],
                    "answers": [
                        {"text": text, "answer_start": start}
                        for text, start in zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
                    ],
                }
            ],
        }
        for row in rows
    ]
    half = len(rows) // 2
    articles = [{"title": "one", "paragraphs": paragraphs[:half]}, {"title": "two", "paragraphs": paragraphs[half:]}]
    return {"version": "v2.0", "data": articles}


def test_all_formats_of_squad_give_the_same_rows(model: str) -> None:
    rows = questions(30, silent=True)
    Path("nested.json").write_text(json.dumps(nested(rows)), encoding="utf-8")
    Path("flat.json").write_text(json.dumps({"version": "1", "data": rows}), encoding="utf-8")
    for row in rows:
        del row["id"]  # rows are numbered then
    files = ["nested.json", "flat.json", write_rows(Path("rows.jsonl"), rows)]
    words = ["--model_name_or_path", model, "--do_eval", "--version_2_with_negative", "--max_eval_samples", "20"]
    results = [
        measured(run("question-answering", [*words, "--validation_file", file, *SHORT]).metrics) for file in files
    ]
    for result in results:
        result.pop("eval_model_preparation_time", None)
    assert results[0] == results[1] == results[2]
    assert results[0]["eval_total"] == 20
    assert set(json.loads(Path("out/eval_predictions.json").read_text())) == {str(n) for n in range(20)}


def test_a_test_set_needs_no_answers(model: str) -> None:
    rows = [{name: row[name] for name in ("id", "context", "question")} for row in questions(10)]
    words = [
        "--model_name_or_path",
        model,
        "--test_file",
        write_rows(Path("test.jsonl"), rows),
        "--do_predict",
        *SHORT,
    ]
    finished = run("question-answering", words)
    assert "predict_f1" not in finished.metrics
    predicted = read_rows(Path("out/predictions.jsonl"))
    assert [one["question"] for one in predicted] == [row["question"] for row in rows]
    assert all(one["prediction"] in row["context"] for one, row in zip(predicted, rows, strict=True))


# ---- wrong input ----------------------------------------------------------------------------------------------------


def wrong(**changed: Any) -> list[dict[str, Any]]:
    good = {"id": "a", "context": "Anna lives in Ulm.", "question": "Where?"}
    good["answers"] = {"text": ["Ulm"], "answer_start": [14]}
    return [good, {**good, "id": "b", **changed}]


def answers(*pairs: tuple[str, int]) -> dict[str, Any]:
    return {"text": [text for text, _ in pairs], "answer_start": [start for _, start in pairs]}


WRONG_ROWS = {
    "elsewhere": (
        wrong(answers=answers(("Ulm", 5))),
        "row 2, column 'answers': 'Ulm' is not at character 5.*there is 'liv'.*14",
    ),
    "outside": (wrong(answers=answers(("Ulm", 99))), "row 2.*not at character 99.*has 18 characters.*it is at 14"),
    "negative": (wrong(answers=answers(("Ulm", -4))), "row 2.*not at character -4"),
    "nowhere": (wrong(answers=answers(("Oslo", 0))), "row 2.*'Oslo' is not at.*there is 'Anna'.*not in the context"),
    "no place": (wrong(answers={"text": ["Ulm"], "answer_start": []}), "row 2.*1 texts and 0 positions"),
    "no answers": (wrong(answers=None), "row 2, column 'answers': these are not answers"),
    "empty context": (
        wrong(context=" ", answers=answers()),
        "train.jsonl, row 2, column 'context': the context is em",
    ),
    "no question": (wrong(question=None), "train.jsonl, row 2, column 'question': this is not a text"),
    "long question": (wrong(question="Where " * 50), "train.jsonl, id 'b': the question has .* tokens.*--doc_stride"),
}


@pytest.mark.parametrize("mistake", WRONG_ROWS)
def test_wrong_rows_are_named(model: str, mistake: str) -> None:
    rows, message = WRONG_ROWS[mistake]
    words = ["--train_file", write_rows(Path("train.jsonl"), rows), "--do_train", "--model_name_or_path", model]
    with pytest.raises(DataError, match=f"(?s){message}"):
        run("question-answering", [*words, *SHORT])


def test_missing_columns_and_duplicate_ids_are_errors(model: str) -> None:
    words = ["--do_eval", "--model_name_or_path", model, *SHORT, "--validation_file"]
    rows = [{"query" if name == "question" else name: value for name, value in row.items()} for row in wrong()]
    with pytest.raises(DataError, match=r"dev.jsonl has no column 'question'\n.*'query'"):
        run("question-answering", [*words, write_rows(Path("dev.jsonl"), rows)])
    rows = [{name: row[name] for name in ("context", "question")} for row in wrong()]
    with pytest.raises(DataError, match=r"more.jsonl has no column 'answers'"):
        run("question-answering", [*words, write_rows(Path("more.jsonl"), rows)])
    with pytest.raises(DataError, match=r"twice.jsonl, row 2, column 'id': row 1 has this id too"):
        run("question-answering", [*words, write_rows(Path("twice.jsonl"), wrong(id="a"))])


def test_windows_that_would_not_advance_are_errors(model: str) -> None:
    file = write_rows(Path("train.jsonl"), wrong())
    words = ["--train_file", file, "--do_train", "--model_name_or_path", model, *SHORT]
    with pytest.raises(ConfigError, match="--doc_stride 40 and --max_seq_length 40"):
        run("question-answering", [*words, "--doc_stride", "40"])
    with pytest.raises(ConfigError, match="--doc_stride 38 with windows of 40"):
        run("question-answering", [*words, "--doc_stride", "38"])


def test_unsuitable_tokenizers_are_errors(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_rows(Path("train.jsonl"), wrong())
    words = ["--train_file", file, "--do_train", "--model_name_or_path", model, *SHORT]
    with monkeypatch.context() as changed:
        changed.setattr(transformers.PreTrainedTokenizerFast, "is_fast", False)
        with pytest.raises(ConfigError, match="does not return the positions of its tokens in a text"):
            run("question-answering", words)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = None
    tokenizer.save_pretrained("unpadded")
    with pytest.raises(ConfigError, match="has no pad token"):
        run("question-answering", [*words, "--tokenizer_name", "unpadded"])
