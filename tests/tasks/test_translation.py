"""Translation: its sample, the same losses and BLEU as a plain program of transformers, languages, wrong rows."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import transformers

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.generation import TextGenerator
from ostinato.tasks.samples.sentences import build_translation_pair, create_random
from tests.support.seq2seq_runs import SHORT, Pair, begin, plain_program, save_model
from tests.support.task_runs import assert_same_run, measured, read_rows, write_rows

INTO_GERMAN = ["--source_lang", "en", "--target_lang", "de"]


def sentences(count: int, seed: int = 0) -> list[Pair]:
    numbers = create_random(seed)
    return [build_translation_pair(numbers) for _ in range(count)]


def write(name: str, pairs: list[Pair]) -> str:
    return write_rows(Path(name), [{"translation": {"en": english, "de": german}} for english, german in pairs])


def scores(written: list[str], expected: list[str]) -> dict[str, float]:
    bleu = sacrebleu.corpus_bleu(written, [expected], force=True)
    return {"bleu": bleu.score, "chrf": sacrebleu.corpus_chrf(written, [expected]).score}


def test_the_sample_is_learned() -> None:
    finished = run("translation", ["--sample"])
    assert finished.sample is not None
    assert finished.sample.is_beaten_by(finished.metrics), finished.metrics
    assert finished.metrics["eval_bleu"] > 80
    home = Path("runs/translation")
    predicted, rows = read_rows(home / "predictions.jsonl"), read_rows(home / "data/test.jsonl")
    assert [{name: row[name] for name in ("en", "de")} for row in predicted] == [row["translation"] for row in rows]
    written = [row["prediction"] for row in predicted]
    again = scores(written, [row["de"] for row in predicted])
    assert round(again["bleu"], 4) == finished.metrics["predict_bleu"]
    assert (home / "generated_predictions.txt").read_text(encoding="utf-8").splitlines() == written
    assert "language:\n- en\n- de\n" in (home / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def multilingual(shelf: Path) -> str:
    """An mBART of 16 units with its own tokenizer, whose pieces are the words of our sentences."""
    words = dict.fromkeys(f"▁{word}" for pair in sentences(200) for text in pair for word in text.split())
    special = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    tokenizer = transformers.MBart50Tokenizer(
        vocab=[*special, *((word, -2.0) for word in words)], src_lang="en_XX", tgt_lang="de_DE"
    )
    sizes = {f"{side}_{name}": 1 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    config = transformers.MBartConfig(
        vocab_size=len(tokenizer),
        d_model=16,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        pad_token_id=1,
        decoder_start_token_id=2,
        **sizes,
    )
    transformers.set_seed(3)
    model = transformers.MBartForConditionalGeneration(config)
    begin(model, tokenizer, sentences(16))
    model.save_pretrained(shelf / "mbart")
    tokenizer.save_pretrained(shelf / "mbart")
    return str(shelf / "mbart")


MULTILINGUAL = ["--source_lang", "en_XX", "--target_lang", "de_DE"]
VARIANTS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "two beams": (
        "marian",
        [*INTO_GERMAN, "--num_beams", "2", "--val_max_target_length", "12"],
        {"beams": 2, "longest": (32, 16, 12)},
    ),
    "padded to the full length": (
        "t5",
        [*INTO_GERMAN, "--pad_to_max_length", "true", "--source_prefix", "to German: "],
        {"pad": True, "prefix": "to German: "},
    ),
    "one of many languages": (
        "mbart",
        [*MULTILINGUAL, "--forced_bos_token", "de_DE"],
        {"forced": "de_DE", "src_lang": "en_XX", "tgt_lang": "de_DE"},
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_metrics_are_those_of_a_plain_program(variant: str, multilingual: str) -> None:
    kind, more, options = VARIANTS[variant]
    train, dev = sentences(24, 1), sentences(8, 2)
    model = multilingual if kind == "mbart" else save_model(kind, sentences(100), Path("m"))
    words = ["--model_name_or_path", model, "--train_file", write("train.jsonl", train), "--do_train", "--do_eval"]
    words += ["--validation_file", write("dev.jsonl", dev), "--predict_with_generate", *SHORT, *more]
    finished = run("translation", words)
    theirs, metrics = plain_program(model, train, dev, scores, **options)
    assert_same_run(finished.trainer, theirs)
    expected = measured(metrics)
    assert expected["eval_chrf"] > 0
    assert {name: finished.metrics[name] for name in expected} == expected


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    return save_model("bart", sentences(100), shelf / "model")


def command(model: str, train: str, *more: str) -> list[str]:
    words = ["--model_name_or_path", model, "--train_file", train, "--do_train", *SHORT]
    return [*words, "--num_train_epochs", "1", *more]


def test_columns_named_after_languages_give_the_same_rows(model: str) -> None:
    with Path("rows.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "de", "en"), *((i, b, a) for i, (a, b) in enumerate(sentences(8)))])
    plain = run("translation", command(model, "rows.csv", *INTO_GERMAN)).trainer.train_dataset
    nested = run("translation", command(model, write("rows.jsonl", sentences(8)), *INTO_GERMAN)).trainer.train_dataset
    assert plain[:] == nested[:]


def test_a_row_without_one_of_the_languages_is_left_out_and_named(
    model: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[Any] = [{"translation": {"en": english, "de": german}} for english, german in sentences(8)]
    rows[4] = {"translation": {"en": "often the king asks"}}
    rows[6] = {"translation": None}
    finished = run("translation", command(model, write_rows(Path("rows.jsonl"), rows), *INTO_GERMAN))
    assert len(finished.trainer.train_dataset) == 6
    assert "rows.jsonl: 2 of 8 rows are dropped" in caplog.text
    assert "the first is row 5, column 'translation', without 'de'" in caplog.text
    with pytest.raises(DataError, match="row 7, column 'translation': 'en' is empty"):
        run("translation", [*command(model, "rows.jsonl", *INTO_GERMAN), *PREDICT])


PREDICT = ["--test_file", "rows.jsonl", "--do_predict", "--predict_with_generate"]
WRONG = {
    "no languages": ([], "--source_lang is missing.*rows.jsonl has en, de"),
    "one language": (["--source_lang", "en"], "--target_lang is missing"),
    "the same": (["--source_lang", "en", "--target_lang", "en"], "both 'en'"),
    "no such language": (["--source_lang", "en", "--target_lang", "fr"], "no language in.*'fr'.*it has en, de"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_languages_have_to_be_named(model: str, mistake: str) -> None:
    options, message = WRONG[mistake]
    with pytest.raises((ConfigError, DataError), match=f"(?s){message}"):
        run("translation", command(model, write("rows.jsonl", sentences(8)), *options))


def test_rows_of_another_shape_are_named(model: str) -> None:
    rows: list[Any] = [{"translation": "often the king asks"}]
    with pytest.raises(DataError, match="row 1, column 'translation': this is not a text for each language"):
        run("translation", command(model, write_rows(Path("rows.jsonl"), rows), *INTO_GERMAN))
    with pytest.raises(DataError, match=r"(?s)has no column 'de'.*it has en, german"):
        rows = [{"en": "often", "german": "oft"}]
        run("translation", command(model, write_rows(Path("rows.jsonl"), rows), *INTO_GERMAN))


def test_a_multilingual_tokenizer_must_know_the_languages(multilingual: str, caplog: pytest.LogCaptureFixture) -> None:
    words = command(multilingual, write("rows.jsonl", sentences(8)))
    with pytest.raises(ConfigError, match=r"(?s)--target_lang de: the tokenizer has no such token.*ar_AR"):
        run("translation", [*words, "--source_lang", "en_XX", "--target_lang", "de"])
    finished = run("translation", [*words, *MULTILINGUAL])
    assert "--forced_bos_token de_DE makes every generated text begin with that language" in caplog.text
    tokenizer, row = finished.trainer.processing_class, finished.trainer.train_dataset[0]
    beginnings = [tokenizer.convert_ids_to_tokens(row[name][0]) for name in ("input_ids", "labels")]
    assert beginnings == ["en_XX", "de_DE"]
    run("translation", [*words, *MULTILINGUAL, "--forced_bos_token", "de_DE"])
    writer = TextGenerator.load("out", use_cpu=True)
    assert writer.model.generation_config.forced_bos_token_id == tokenizer.convert_tokens_to_ids("de_DE")
    assert (writer.tokenizer.src_lang, writer.tokenizer.tgt_lang) == ("en_XX", "de_DE")
    writer.set_languages(None, "fr_XX")
    assert writer.model.generation_config.forced_bos_token_id == tokenizer.convert_tokens_to_ids("fr_XX")
    with pytest.raises(ConfigError, match="--source_lang en: the tokenizer has no such token"):
        writer.set_languages("en", None)


def test_without_sacrebleu_chrf_remains(
    model: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ostinato.tasks.translation.find_spec", lambda name: None)
    dev = write("dev.jsonl", sentences(4))
    words = ["--model_name_or_path", model, "--validation_file", dev, "--do_eval", "--predict_with_generate"]
    metrics = run("translation", [*words, *INTO_GERMAN, *SHORT]).metrics
    assert "eval_chrf" in metrics and "eval_bleu" not in metrics
    assert "BLEU is not measured" in caplog.text
