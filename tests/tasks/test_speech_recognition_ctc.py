"""Speech recognition by CTC: its sample, the losses of a plain program of transformers, vocabularies, adapters."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.ctc_vocabulary import SpecialTokens, build_tokenizer, build_vocabulary
from ostinato.tasks.samples.tones import RATE, build_digits, save_recording, synthesize_speech
from tests.support.apis import guest
from tests.support.real_data import on_real_data, read_table
from tests.support.task_runs import assert_same_run, plain_arguments, read_rows, write_rows

jiwer = pytest.importorskip("jiwer")
soundfile = pytest.importorskip("soundfile")
TASK = "speech-recognition-ctc"
SHORT = [
    *("--num_train_epochs", "1", "--per_device_train_batch_size", "8", "--logging_steps", "1"),
    *("--learning_rate", "1e-3", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no", "--rehearse", "false"),
]


NO_SPLIT = ["--train_val_split", "0"]


def record(name: str, count: int, seed: int = 0) -> str:
    """A table of one or two spoken digits, with a capital and a point."""
    numbers, rows = random.Random(seed), []
    for number in range(count):
        text, file = build_digits(1 + number % 2, numbers), f"{name}/{number:03}.wav"
        save_recording(synthesize_speech(text, numbers), Path(file))
        rows.append({"audio": file, "text": f"{text.capitalize()}."})
    return write_rows(Path(f"{name}.jsonl"), rows)


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    """A directory with a small pretrained model: without a tokenizer and an output layer."""
    config = transformers.Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, conv_dim=(8, 8),
        conv_kernel=(16, 8), conv_stride=(8, 8), num_feat_extract_layers=2, feat_extract_norm="layer",
        do_stable_layer_norm=True, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    transformers.set_seed(3)
    transformers.Wav2Vec2Model(config).save_pretrained(shelf / "model")
    extractor = transformers.Wav2Vec2FeatureExtractor(sampling_rate=RATE, return_attention_mask=True)
    extractor.save_pretrained(shelf / "model")
    return str(shelf / "model")


def test_the_sample_is_learned() -> None:
    finished = run(TASK, ["--sample", "--max_train_samples", "200", "--eval_strategy", "no"])
    assert finished.sample is not None
    assert finished.metrics["eval_cer"] < 0.5 * finished.sample.baseline
    home = Path("runs") / TASK
    predicted = read_rows(home / "predictions.jsonl")
    texts, found = [one["text"] for one in predicted], [one["prediction"] for one in predicted]
    assert jiwer.cer(texts, found) == pytest.approx(finished.metrics["predict_cer"])
    assert (home / "report.html").read_text().count("data:image/png;base64,") == 24
    again = ["--model_name_or_path", str(home), "--test_file", str(home / "data/test.jsonl"), "--do_predict"]
    run(TASK, [*again, "--output_dir", "again", "--report_to", "none"])
    assert [one["prediction"] for one in read_rows(Path("again/predictions.jsonl"))] == found


def plain_program(model: str) -> Any:
    """What somebody who knows transformers would write for recordings and texts."""
    rows = {name: read_rows(Path(f"{name}.jsonl")) for name in ("train", "dev")}
    texts = [row["text"].lower().replace(".", "") for name in rows for row in rows[name]]
    characters = sorted(set("".join(texts)))
    known = {"|" if one == " " else one: number for number, one in enumerate(characters)}
    Path("vocab.json").write_text(json.dumps({**known, "[UNK]": len(known), "[PAD]": len(known) + 1}))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(
        "vocab.json", unk_token="[UNK]", pad_token="[PAD]", word_delimiter_token="|", bos_token=None, eos_token=None
    )
    transformers.set_seed(7)
    extractor = transformers.AutoFeatureExtractor.from_pretrained(model)
    quiet = dict.fromkeys(
        ["attention_dropout", "activation_dropout", "feat_proj_dropout", "hidden_dropout", "final_dropout"], 0.0
    )
    network = transformers.AutoModelForCTC.from_pretrained(
        model, **quiet, layerdrop=0.0, mask_time_prob=0.05, mask_time_length=10, mask_feature_prob=0.0,
        mask_feature_length=10, ctc_loss_reduction="mean", vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    network.freeze_feature_encoder()

    def features(name: str) -> list[dict[str, Any]]:
        return [
            {
                **extractor(soundfile.read(row["audio"], dtype="float32")[0], sampling_rate=RATE),
                "labels": tokenizer(row["text"].lower().replace(".", "")).input_ids,
            }
            for row in rows[name]
        ]

    def collate(batch: list[dict[str, Any]]) -> dict[str, Any]:
        inputs = [{key: row[key][0] for key in ("input_values", "attention_mask")} for row in batch]
        made = extractor.pad(inputs, padding=True, return_tensors="pt")
        width = max(len(row["labels"]) for row in batch)
        made["labels"] = torch.tensor([row["labels"] + [-100] * (width - len(row["labels"])) for row in batch])
        return made

    def transcribe(row: dict[str, Any]) -> str:
        """One recording alone, without padding."""
        with torch.no_grad():
            logits = network(**collate([row])).logits
        return tokenizer.decode(logits[0].argmax(-1)).strip()

    with guest("transformers"):
        trainer = transformers.Trainer(
            model=network,
            args=plain_arguments(1e-3, num_train_epochs=1),
            train_dataset=features("train"),
            eval_dataset=features("dev"),
            data_collator=collate,
        )
        trainer.train()
        trainer.evaluate()
    found = [transcribe(row) for row in features("dev")]
    spoken = [row["text"].lower().replace(".", "") for row in rows["dev"]]
    return trainer, {"eval_wer": jiwer.wer(spoken, found), "eval_cer": jiwer.cer(spoken, found)}


def test_losses_and_metrics_are_those_of_a_plain_program(model: str) -> None:
    compare(model, record("train", 24), record("dev", 8, 1))


@on_real_data
def test_losses_on_speech_are_those_of_a_plain_program(model: str) -> None:
    rows = read_table("speech-recognition/asterisk-en-train", 40)
    rows = [{"audio": row["file"], "text": " ".join(row["text"].replace(".", "").split())} for row in rows]
    compare(model, write_rows(Path("train.jsonl"), rows[:32]), write_rows(Path("dev.jsonl"), rows[32:]))


def compare(model: str, train: str, dev: str) -> None:
    words = ["--model_name_or_path", model, "--train_file", train, "--validation_file", dev]
    finished = run("run_speech_recognition_ctc.py", [*words, "--chars_to_ignore", ".", *SHORT])
    theirs, metrics = plain_program(model)
    for log in finished.trainer.state.log_history:  # theirs are of the whole padded batch
        measured = {name: log.pop(name) for name in ("eval_wer", "eval_cer") if name in log}
    assert_same_run(finished.trainer, theirs)
    assert measured == pytest.approx(metrics)


def test_an_adapter_is_trained_saved_alone_and_loaded(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model_name_or_path", model, "--train_file", record("train", 16), "--do_train", *SHORT]
    finished = run("run_speech_recognition_ctc_adapter.py", [*words, "--target_language", "eng"])
    trained = {name for name, weight in finished.trainer.model.named_parameters() if weight.requires_grad}
    assert trained and all("adapter_layer" in name or "lm_head" in name for name in trained)
    later = run(TASK, [*words, "--model_name_or_path", "out", "--target_language", "tur", "--output_dir", "both"])
    assert sorted(path.name for path in Path("both").glob("adapter.*")) == [
        "adapter.eng.safetensors",
        "adapter.tur.safetensors",
    ]
    loaded = transformers.Wav2Vec2ForCTC.from_pretrained("both")
    assert all(map(torch.equal, loaded.state_dict().values(), later.trainer.model.state_dict().values()))
    loaded.load_adapter("eng")
    expected = finished.trainer.model.state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in loaded.state_dict().items())
    tokenizer = transformers.AutoTokenizer.from_pretrained("both")
    assert sorted(tokenizer.vocab) == ["eng", "tur"]
    predict = ["--model_name_or_path", "both", "--test_file", "train.jsonl", "--do_predict", *SHORT]
    run(TASK, [*predict, "--target_language", "eng", "--output_dir", "predicted"])
    assert len(read_rows(Path("predicted/predictions.jsonl"))) == 16
    with pytest.raises(ConfigError, match=r"(?s)the tokenizer does not know it.*its languages are eng, tur"):
        run(TASK, [*predict, "--target_language", "deu"])


def test_a_model_without_adapters(model: str) -> None:
    config = {"model_type": "hubert", **json.loads((Path(model) / "config.json").read_text()), "architectures": None}
    Path("config.json").write_text(json.dumps({**config, "model_type": "hubert"}))
    words = ["--config_name", "config.json", "--train_file", record("train", 8), "--do_train", *SHORT]
    with pytest.raises(ConfigError, match=r"(?s)--target_language with HubertForCTC.*no layers for adapters"):
        run(TASK, [*words, "--sampling_rate", str(RATE), "--target_language", "eng"])


def save_tokenizer(texts: list[str]) -> str:
    build_tokenizer(build_vocabulary(texts, SpecialTokens()), SpecialTokens()).save_pretrained("tokenizer")
    return "tokenizer"


def rewrite(**values: Any) -> None:
    rows = read_rows(Path("train.jsonl"))
    rows[2].update(values)
    write_rows(Path("train.jsonl"), rows)


WRONG_ROWS = {
    "no text": (lambda: rewrite(text=None), [], "train.jsonl, row 3, column 'text': there is no text to recognize"),
    "a text of ignored characters": (
        lambda: rewrite(text="..."),
        ["--chars_to_ignore", "."],
        "row 3.*no text to recog",
    ),
    "no text column": (lambda: None, ["--text_column_name", "words"], "no column 'words'.*--text_column_name"),
    "characters outside of a vocabulary": (
        lambda: rewrite(text="zwölf"),
        ["--tokenizer_name_or_path", "tokenizer", "--chars_to_ignore", "."],
        "train.jsonl, row 3, column 'text': the tokenizer has no 'l', 'ö'.*--chars_to_ignore 'lö'",
    ),
    "the delimiter": (lambda: rewrite(text="a|b"), [], "the texts hold '|'.*--chars_to_ignore"),
    "an empty recording": (
        lambda: soundfile.write("train/002.wav", np.zeros(0), RATE),
        [],
        "train.jsonl, row 3, column 'audio': train/002.wav is empty",
    ),
    "only long recordings": (lambda: None, ["--max_duration_in_seconds", "0.1"], "between 0 and 0.1 seconds"),
    "only long texts": (
        lambda: write_rows(Path("train.jsonl"), [{"audio": "train/000.wav", "text": "one " * 99}]),
        [],
        "every recording has fewer frames than its text has characters",
    ),
}


@pytest.mark.parametrize("mistake", WRONG_ROWS)
def test_wrong_rows_are_named(model: str, mistake: str) -> None:
    change, more, message = WRONG_ROWS[mistake]
    words = ["--model_name_or_path", model, "--train_file", record("train", 6), "--do_train", *SHORT]
    save_tokenizer([row["text"].lower() for row in read_rows(Path("train.jsonl"))] + ["zero six two four five seven"])
    change()
    with pytest.raises((DataError, ConfigError), match=f"(?s){message}".replace("|", r"\|")):
        run(TASK, [*words, *NO_SPLIT, *more])


def test_rows_that_cannot_be_learned_are_left_out(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model_name_or_path", model, "--train_file", record("train", 12), "--do_train", *SHORT]
    rewrite(text="one " * 99)
    Path("train/004.wav").write_bytes(b"")
    shortest = sorted(soundfile.info(f"train/{n:03}.wav").duration for n in range(12) if n != 4)[0]
    finished = run(TASK, [*words, "--skip_bad_rows", "--min_duration_in_seconds", str(shortest + 1e-4), *NO_SPLIT])
    told = capsys.readouterr().err
    assert "train.jsonl: 1 of 12 rows are left out: they are not between" in told
    assert "train.jsonl: 1 of 11 rows are left out: their texts have more characters than the recordings" in told
    assert finished.metrics["train_samples"] == 10
    assert len(finished.trainer.skipped_rows) == 1


def test_texts_that_cannot_be_learned_are_skipped(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model_name_or_path", model, "--train_file", record("train", 8), "--validation_file", "train.jsonl"]
    save_tokenizer([row["text"].lower() for row in read_rows(Path("train.jsonl"))] + ["zero six"])
    rows = read_rows(Path("train.jsonl"))
    rows[1]["text"], rows[2]["text"], rows[5]["text"] = None, "zwölf", "one " * 99
    write_rows(Path("train.jsonl"), rows)
    finished = run(TASK, [*words, "--tokenizer_name_or_path", "tokenizer", "--skip_bad_rows", *SHORT])
    told = capsys.readouterr().err
    assert "skipped train.jsonl, row 2, column 'text': there is no text to recognize" in told
    assert "skipped train.jsonl, row 3, column 'text': the tokenizer has no 'l', 'ö'" in told
    assert "texts have more characters than the recordings have frames; the first is train.jsonl, row 6" in told
    kept = [row["audio"] for row in finished.trainer.train_dataset.split.rows]
    assert kept == [f"train/{number:03}.wav" for number in (0, 3, 4, 6, 7)]
    assert finished.metrics["eval_samples"] == 6  # an evaluation keeps long texts


def test_blanks_follow_the_end_of_a_recording(model: str) -> None:
    """What is predicted for a recording does not depend on the padding of its batch."""
    words = ["--model_name_or_path", model, "--train_file", record("train", 8), "--do_train", *SHORT]
    run(TASK, [*words, "--learning_rate", "0.05", "--freeze_feature_encoder", "false"])
    predict = ["--model_name_or_path", "out", "--test_file", "train.jsonl", "--do_predict", *SHORT]
    run(TASK, [*predict, "--output_dir", "one", "--per_device_eval_batch_size", "1"])
    run(TASK, [*predict, "--output_dir", "all", "--per_device_eval_batch_size", "8"])
    assert read_rows(Path("one/predictions.jsonl")) == read_rows(Path("all/predictions.jsonl"))
