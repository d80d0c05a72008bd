"""Token classification: its sample, the same losses as a plain program of transformers, wrong rows."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seqeval.metrics
import transformers

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.samples import token_classification_sample as sample
from ostinato.tasks.samples.sentences import create_random, pick
from ostinato.tasks.tokenizers import BERT, XLNET, Style, train_tokenizer
from tests.support.apis import guest
from tests.support.task_runs import assert_same_run, logged, measured, read_rows, write_rows

SHORT = [
    *("--num_train_epochs", "6", "--per_device_train_batch_size", "8", "--per_device_eval_batch_size", "32"),
    *("--logging_steps", "1", "--learning_rate", "1e-2", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no"),
]
PARTS = {"person": "NOUN", "place": "NOUN", "company": "NOUN", "went": "VERB", "works": "VERB", "met": "VERB"}


def sentences(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Tagged sentences; every tag there is comes up in the first few."""
    numbers = create_random(seed)
    patterns = [*sample.PATTERNS, *(pick(sample.PATTERNS, numbers) for _ in range(count))][:count]
    return [sample._build_sentence(pattern, numbers) for pattern in patterns]


def parts_of_speech(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            **row,
            "pos_tags": [
                "NOUN" if tag != "O" else PARTS.get(word, "X") for word, tag in zip(*row.values(), strict=True)
            ],
        }
        for row in rows
    ]


def words_of(rows: list[dict[str, Any]]) -> list[str]:
    return [word for row in rows for word in row["tokens"]]


def save(home: Path, config: Any, tokenizer: Any) -> str:
    transformers.set_seed(3)
    transformers.AutoModel.from_config(config).save_pretrained(home)
    tokenizer.save_pretrained(home)
    return str(home)


def small(tokenizer: Any, kind: Any = transformers.BertConfig, **more: Any) -> Any:
    return kind(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        pad_token_id=tokenizer.pad_token_id,
        **more,
    )


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    """A directory with a small BERT and a tokenizer that cuts most words into pieces."""
    tokenizer = train_tokenizer(words_of(sentences(200)), 120, BERT)
    return save(shelf / "model", small(tokenizer), tokenizer)


def test_the_sample_is_learned() -> None:
    finished = run("ner", ["--sample"])
    assert finished.sample is not None
    assert 0.3 < finished.sample.baseline < 0.6
    assert finished.metrics["eval_f1"] > finished.sample.baseline + 0.3
    home = Path("runs/token-classification")
    predicted, rows = read_rows(home / "predictions.jsonl"), read_rows(home / "data/test.jsonl")
    guesses, truths = [one["prediction"] for one in predicted], [row["ner_tags"] for row in rows]
    assert [one["tokens"] for one in predicted] == [row["tokens"] for row in rows]
    assert seqeval.metrics.f1_score(truths, guesses) == pytest.approx(finished.metrics["predict_f1"])
    assert [line.split() for line in (home / "predictions.txt").read_text().splitlines()] == guesses
    for one in predicted:
        for entity in one["entities"]:
            inside = one["prediction"][entity["first"] : entity["last"] + 1]
            assert {tag[2:] for tag in inside} == {entity["type"]}
            assert entity["text"] == " ".join(one["tokens"][entity["first"] : entity["last"] + 1])


# ---- parity ---------------------------------------------------------------------------------------------------------


def plain_program(
    model: str,
    train: list[Any],
    dev: list[Any],
    *,
    column: str = "ner_tags",
    all_tokens: bool = False,
    pad: bool = False,
    length: int | None = None,
    **tokenizer_options: Any,
) -> Any:
    """What somebody who knows transformers would write for words and their tags."""
    transformers.set_seed(7)
    names = sorted({tag for row in train for tag in row[column]})
    config = transformers.AutoConfig.from_pretrained(model, num_labels=len(names))
    tokenizer = transformers.AutoTokenizer.from_pretrained(model, **tokenizer_options)
    network = transformers.AutoModelForTokenClassification.from_pretrained(model, config=config)

    def features(row: dict[str, Any]) -> dict[str, Any]:
        made = tokenizer(
            row["tokens"],
            is_split_into_words=True,
            truncation=length is not None,
            max_length=length,
            padding="max_length" if pad else False,
        )
        labels, before = [], None
        for word in made.word_ids():
            if word is None:
                labels.append(-100)
            elif word != before:
                labels.append(names.index(row[column][word]))
            elif all_tokens:
                inside = row[column][word].replace("B-", "I-")
                labels.append(names.index(inside if inside in names else row[column][word]))
            else:
                labels.append(-100)
            before = word
        return {**made, "labels": labels}

    def metric(prediction: Any) -> dict[str, float]:
        chosen, labels = prediction.predictions.argmax(-1), prediction.label_ids
        guesses = [[names[i] for i in row[mask]] for row, mask in zip(chosen, labels != -100, strict=True)]
        truths = [[names[i] for i in row[row != -100]] for row in labels]
        if column == "pos_tags":
            return {"accuracy": seqeval.metrics.accuracy_score(truths, guesses)}
        return {
            "precision": seqeval.metrics.precision_score(truths, guesses, zero_division=0),
            "recall": seqeval.metrics.recall_score(truths, guesses, zero_division=0),
            "f1": seqeval.metrics.f1_score(truths, guesses, zero_division=0),
            "accuracy": seqeval.metrics.accuracy_score(truths, guesses),
        }

    with guest("transformers"):
        trainer = transformers.Trainer(
            model=network,
            args=transformers.TrainingArguments(
                "theirs",
                num_train_epochs=6,
                per_device_train_batch_size=8,
                per_device_eval_batch_size=32,  # one batch: of several, transformers weighs each by its rows
                logging_steps=1,
                learning_rate=1e-2,
                report_to="none",
                seed=7,
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=[features(row) for row in train],
            eval_dataset=[features(row) for row in dev],
            processing_class=tokenizer,
            compute_metrics=metric,
            data_collator=transformers.DataCollatorForTokenClassification(tokenizer),
        )
        trainer.train()
        return trainer, trainer.evaluate()


VARIANTS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "names": ("ner", [], {}),
    "every piece": ("ner", ["--label_all_tokens"], {"all_tokens": True}),
    "padded to the full length": (
        "run_ner.py",
        ["--max_seq_length", "24", "--pad_to_max_length"],
        {"pad": True, "length": 24},
    ),
    "cut": ("ner", ["--max_seq_length", "10"], {"length": 10}),
    "parts of speech": ("pos", [], {"column": "pos_tags"}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_metrics_are_those_of_a_plain_program(model: str, variant: str) -> None:
    task, more, options = VARIANTS[variant]
    train, dev = parts_of_speech(sentences(40, 1)), parts_of_speech(sentences(20, 2))
    assert_same(task, [*more, "--model_name_or_path", model], train, dev, plain_program(model, train, dev, **options))


def assert_same(task: str, words: list[str], train: list[Any], dev: list[Any], plain: Any) -> None:
    files = ["--train_file", write_rows(Path("train.jsonl"), train)]
    files += ["--validation_file", write_rows(Path("dev.jsonl"), dev)]
    finished = run(task, [*files, *words, "--do_train", "--do_eval", *SHORT])
    theirs, metrics = plain
    expected = measured(metrics)
    assert {name: finished.metrics[name] for name in expected} == pytest.approx(expected, rel=1e-14)
    for entry in (finished.trainer.state.log_history[-1], theirs.state.log_history[-1]):
        entry.pop("eval_f1", None)  # seqeval divides in another order: the last of 16 digits may differ
    assert_same_run(finished.trainer, theirs)
    assert len(logged(theirs)) == 32
    assert len(set(expected.values())) == len(expected)  # something was found, or the comparison would say little


def test_words_of_byte_level_tokenizers_begin_with_a_space(tmp_path: Path) -> None:
    made = train_tokenizer((" " + word for word in words_of(sentences(200))), 400, ROBERTA)
    state = made.backend_tokenizer.model
    state.save(str(tmp_path))
    tokenizer = transformers.RobertaTokenizerFast(
        vocab=made.get_vocab(),
        merges=[tuple(line.split()) for line in (tmp_path / "merges.txt").read_text().splitlines()[1:]],
    )
    config = small(tokenizer, transformers.RobertaConfig, max_position_embeddings=66, type_vocab_size=1)
    home = save(tmp_path / "roberta", config, tokenizer)
    train, dev = sentences(20, 1), sentences(16, 2)
    plain = plain_program(home, train, dev, add_prefix_space=True)
    assert "Ġwent" in plain[0].processing_class.tokenize("Anna went")
    files = ["--train_file", write_rows(Path("train.jsonl"), train)]
    finished = run("ner", [*files, "--do_train", "--model_name_or_path", home, *SHORT])
    theirs = [entry for entry in logged(plain[0]) if "eval_loss" not in entry]
    assert logged(finished.trainer) == theirs


ROBERTA = Style(
    pieces="bytes",
    special={
        "bos_token": "<s>",
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    },
    single="<s> $A </s>",
    pair="<s> $A </s> </s> $B </s>",
)


# ---- tags -----------------------------------------------------------------------------------------------------------


def test_tags_may_be_numbers_that_the_data_set_names(model: str) -> None:
    import datasets

    names = sorted({tag for row in sentences(40) for tag in row["ner_tags"]}, reverse=True)
    features = datasets.Features(
        {
            "tokens": datasets.List(datasets.Value("string")),
            "ner_tags": datasets.List(datasets.ClassLabel(names=names)),
        }
    )
    rows = [{**row, "ner_tags": [names.index(tag) for tag in row["ner_tags"]]} for row in sentences(40)]
    hidden = [{**row, "ner_tags": [-1] * len(row["tokens"])} for row in rows[:9]]
    made = {name: datasets.Dataset.from_list(some, features) for name, some in (("train", rows), ("test", hidden))}
    datasets.DatasetDict(made).save_to_disk("saved")
    words = ["--dataset_name", "saved", "--do_train", "--do_predict", "--model_name_or_path", model, *SHORT]
    finished = run("ner", words)
    assert list(finished.trainer.model.config.id2label.values()) == names
    assert "predict_f1" not in finished.metrics and "predict_loss" not in finished.metrics
    predicted = read_rows(Path("out/predictions.jsonl"))
    assert {tag for row in predicted for tag in row["prediction"]} <= set(names)


@pytest.mark.parametrize("all_tokens", [False, True], ids=["first pieces", "every piece"])
def test_predictions_alone_have_a_tag_for_every_word(tmp_path: Path, all_tokens: bool) -> None:
    """Also where rows are padded on the left, cut off, and have words of which nothing is left."""
    tokenizer = train_tokenizer(words_of(sentences(200)), 200, XLNET)
    config = transformers.XLNetConfig(
        vocab_size=len(tokenizer), d_model=16, n_layer=1, n_head=2, d_inner=32, pad_token_id=tokenizer.pad_token_id
    )
    home = save(tmp_path / "xlnet", config, tokenizer)
    flags = ["--label_all_tokens"] if all_tokens else []
    file = write_rows(Path("train.jsonl"), sentences(80))
    long = [*SHORT, "--num_train_epochs", "8"]
    run("ner", ["--train_file", file, "--do_train", "--model_name_or_path", home, *flags, *long])
    test = [{"tokens": row["tokens"]} for row in sentences(30, 5)]
    test[3] = {"tokens": []}
    test[4]["tokens"].insert(1, "\u200b")
    words = [
        "--test_file",
        write_rows(Path("test.jsonl"), test),
        "--do_predict",
        "--model_name_or_path",
        "out",
        *flags,
    ]
    words += ["--per_device_eval_batch_size", "4", "--report_to", "none", "--output_dir", "out"]
    finished = run("ner", words)
    assert not [name for name in finished.metrics if "f1" in name or "loss" in name]
    predicted = read_rows(Path("out/predictions.jsonl"))
    truths = sentences(30, 5)
    assert [len(row["prediction"]) for row in predicted] == [len(row["tokens"]) for row in test]
    right = [
        guess == tag
        for number, (row, truth) in enumerate(zip(predicted, truths, strict=True))
        if number not in (3, 4)
        for guess, tag in zip(row["prediction"], truth["ner_tags"], strict=True)
    ]
    assert np.mean(right) > 0.7  # words in a wrong place would be tagged by chance
    run("ner", [*words, "--max_seq_length", "8"])
    cut = read_rows(Path("out/predictions.jsonl"))
    assert any(row["prediction"][-1] is None for row in cut if row["tokens"])
    assert [len(line.split()) for line in Path("out/predictions.txt").read_text().split("\n")[:-1]] == [
        len(row["tokens"]) for row in test
    ]


def test_metrics_per_entity_type(model: str) -> None:
    file = write_rows(Path("rows.jsonl"), sentences(20))
    words = ["--train_file", file, "--validation_file", file, "--do_train", "--do_eval", "--model_name_or_path", model]
    finished = run("ner", [*words, *SHORT, "--return_entity_level_metrics", "--metric_for_best_model", "PERSON_f1"])
    assert {"eval_f1", "eval_PERSON_f1", "eval_PLACE_recall", "eval_COMPANY_precision"} <= set(finished.metrics)


def test_truncated_words_are_counted(model: str, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("ostinato")
    logger.addHandler(caplog.handler)
    try:
        rows = [{"tokens": ["Anna"] * 60, "ner_tags": ["B-PERSON"] * 60}, *sentences(7)]
        words = ["--train_file", write_rows(Path("rows.jsonl"), rows), "--do_train", "--model_name_or_path", model]
        for _ in range(2):  # the second time nothing is encoded
            run("ner", [*words, *SHORT, "--max_seq_length", "50"])
            told = [record.getMessage() for record in caplog.records if "longer than" in record.getMessage()]
            caplog.clear()
            assert len(told) == 1 and told[0].startswith(
                "train: 1 of 8 rows are longer than 50 tokens (--max_seq_length) and were truncated by "
            )
    finally:
        logger.removeHandler(caplog.handler)


# ---- wrong input ----------------------------------------------------------------------------------------------------

GOOD = {"tokens": ["Anna", "went"], "ner_tags": ["B-PERSON", "O"]}
WRONG_ROWS = {
    "too few tags": (
        [GOOD, {**GOOD, "ner_tags": ["O"]}],
        "dev.jsonl, row 2, column 'ner_tags': 1 tags for the 2 words",
    ),
    "no such tag": ([{**GOOD, "ner_tags": ["B-PERSN", "O"]}], "row 1, column 'ner_tags'.*did you mean 'B-PERSON'"),
    "no tags": ([GOOD, {**GOOD, "ner_tags": None}], "row 2, column 'ner_tags'.*not a list of tags"),
    "a tag is missing": ([GOOD, {**GOOD, "ner_tags": ["O", None]}], "row 2, column 'ner_tags'.*there is no label"),
    "a text, not words": ([{**GOOD, "tokens": "Anna went"}], "row 1, column 'tokens'.*not a list of words"),
    "a word is missing": ([GOOD, {**GOOD, "tokens": ["Anna", None]}], "row 2, column 'tokens'.*not a list of words"),
    "no words": ([{"token": ["Anna"], "ner_tags": ["O"], "id": 1}], "no column 'tokens'.*--text_column_name.*'token'"),
    "no column of tags": ([{"tokens": ["a"], "nertags": ["O"], "id": 1}], "no column 'ner_tags'.*--label_column_name"),
}


@pytest.mark.parametrize("mistake", WRONG_ROWS)
def test_wrong_rows_are_named(model: str, mistake: str) -> None:
    rows, message = WRONG_ROWS[mistake]
    words = ["--train_file", write_rows(Path("train.jsonl"), sentences(20)), "--do_train", "--do_eval"]
    words += ["--validation_file", write_rows(Path("dev.jsonl"), rows), "--model_name_or_path", model, *SHORT]
    with pytest.raises(DataError, match=f"(?s){message}"):
        run("ner", words)


def test_a_text_file_is_an_error(model: str) -> None:
    Path("train.txt").write_text("Anna B-PERSON\nwent O\n")
    with pytest.raises(DataError, match=r"train\.txt holds lines of text"):
        run("ner", ["--train_file", "train.txt", "--do_train", "--model_name_or_path", model, *SHORT])


def test_a_model_is_not_evaluated_on_tags_that_it_does_not_know(model: str) -> None:
    file = write_rows(Path("train.jsonl"), sentences(20))
    run("ner", ["--train_file", file, "--do_train", "--model_name_or_path", model, *SHORT])
    few = [row for row in sentences(20) if "B-COMPANY" not in row["ner_tags"]]
    words = ["--do_eval", "--model_name_or_path", "out", *SHORT]
    finished = run("ner", ["--validation_file", write_rows(Path("few.jsonl"), few), *words])
    assert len(finished.trainer.model.config.id2label) == 6  # those of the model, though the rows have fewer
    other = write_rows(Path("dev.jsonl"), [{**GOOD, "ner_tags": ["B-ANIMAL", "O"]}])
    with pytest.raises(ConfigError, match="does not know the tags B-ANIMAL"):
        run("ner", ["--validation_file", other, *words])


def test_unsuitable_tokenizers_are_errors(tmp_path: Path) -> None:
    tokenizer = transformers.ByT5Tokenizer(extra_ids=0)
    home = save(tmp_path / "slow", small(tokenizer), tokenizer)
    words = ["--train_file", write_rows(Path("train.jsonl"), sentences(8)), "--do_train", *SHORT]
    with pytest.raises(ConfigError, match="ByT5Tokenizer does not return the word of a piece"):
        run("ner", [*words, "--model_name_or_path", home])
    bare = train_tokenizer(words_of(sentences(50)), 200, BERT)
    bare.pad_token = None
    bare.save_pretrained(tmp_path / "bare")
    with pytest.raises(ConfigError, match="has no pad token"):
        run("ner", [*words, "--tokenizer_name", str(tmp_path / "bare"), "--model_name_or_path", home])
