"""Speech recognition by Whisper: its sample, the losses and texts of a plain program, languages, wrong rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.signal
import torch
import transformers

from ostinato import ConfigError, DataError
from ostinato.tasks import run
from ostinato.tasks.samples.tones import build_digits, save_recording, synthesize_speech
from ostinato.tasks.tokenizers import BART, train_tokenizer
from tests.support.apis import guest
from tests.support.real_data import on_real_data, read_table
from tests.support.task_runs import assert_same_run, plain_arguments, read_rows, write_rows

jiwer = pytest.importorskip("jiwer")
soundfile = pytest.importorskip("soundfile")
TASK = "speech-recognition-seq2seq"
RATE = 16000
SHORT = [
    *("--num_train_epochs", "1", "--per_device_train_batch_size", "8", "--logging_steps", "1"),
    *("--learning_rate", "1e-3", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no", "--rehearse", "false"),
]


def record(name: str, count: int, seed: int = 0) -> str:
    """A table of one spoken digit, in a recording of 16 kHz."""
    numbers, rows = random.Random(seed), []
    for number in range(count):
        text, file = build_digits(1, numbers), f"{name}/{number:03}.wav"
        save_recording(np.repeat(synthesize_speech(text, numbers), 2), Path(file), RATE)
        rows.append({"audio": file, "text": text.capitalize()})
    return write_rows(Path(f"{name}.jsonl"), rows)


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    """A directory with a small Whisper for one second, its tokenizer and its feature extractor."""
    tokenizer = train_tokenizer(["zero one two three four", "five six seven eight nine"], 320, BART)
    config = transformers.WhisperConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=16, max_source_positions=50,
        max_target_positions=16, pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id, decoder_start_token_id=tokenizer.bos_token_id, max_length=12,
        begin_suppress_tokens=None, init_std=0.5,
    )  # fmt: skip
    transformers.set_seed(3)
    network = transformers.WhisperForConditionalGeneration(config)
    network.generation_config.max_length = 12
    network.save_pretrained(shelf / "model")
    tokenizer.save_pretrained(shelf / "model")
    transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=1).save_pretrained(shelf / "model")
    return str(shelf / "model")


def test_the_sample_is_learned() -> None:
    finished = run(TASK, ["--sample", "--num_train_epochs", "6", "--max_train_samples", "200"])
    assert finished.sample is not None
    assert finished.metrics["eval_wer"] < finished.sample.baseline - 0.05
    home = Path("runs") / TASK
    predicted = read_rows(home / "predictions.jsonl")
    texts, found = [one["text"] for one in predicted], [one["prediction"] for one in predicted]
    assert jiwer.wer(texts, found) == pytest.approx(finished.metrics["predict_wer"])
    again = ["--model_name_or_path", str(home), "--test_file", str(home / "data/test.jsonl"), "--do_predict"]
    run(TASK, [*again, "--output_dir", "again", "--report_to", "none"])
    assert [one["prediction"] for one in read_rows(Path("again/predictions.jsonl"))] == found


def plain_program(model: str, *, freeze: bool, masks: dict[str, Any]) -> Any:
    """What somebody who knows transformers would write for recordings and texts."""
    transformers.set_seed(7)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    extractor = transformers.AutoFeatureExtractor.from_pretrained(model)
    network = transformers.AutoModelForSpeechSeq2Seq.from_pretrained(model, **masks)
    if freeze:
        network.freeze_encoder()

    def features(name: str) -> list[dict[str, Any]]:
        return [
            {
                "sound": extractor(
                    soundfile.read(row["audio"], dtype="float32")[0],
                    sampling_rate=RATE,
                    return_attention_mask=bool(masks),
                ),
                "labels": tokenizer(row["text"].lower()).input_ids,
            }
            for row in read_rows(Path(f"{name}.jsonl"))
        ]

    def collate(batch: list[dict[str, Any]]) -> dict[str, Any]:
        made = {
            name: torch.tensor(np.concatenate([row["sound"][name] for row in batch])) for name in batch[0]["sound"]
        }
        labels = [row["labels"][1:] for row in batch]  # the model adds the first token itself
        width = max(map(len, labels))
        return {**made, "labels": torch.tensor([one + [-100] * (width - len(one)) for one in labels])}

    def metric(prediction: Any) -> dict[str, float]:
        def decode(ids: np.ndarray) -> list[str]:
            ids = np.where(ids == -100, tokenizer.pad_token_id, ids)
            return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]

        found, spoken = decode(prediction.predictions), decode(prediction.label_ids)
        return {"wer": jiwer.wer(spoken, found), "cer": jiwer.cer(spoken, found)}

    with guest("transformers"):
        trainer = transformers.Seq2SeqTrainer(
            model=network,
            args=plain_arguments(
                1e-3, transformers.Seq2SeqTrainingArguments, num_train_epochs=1, predict_with_generate=True,
                remove_unused_columns=False,
            ),
            train_dataset=features("train"),
            eval_dataset=features("dev"),
            data_collator=collate,
            compute_metrics=metric,
            processing_class=tokenizer,
        )  # fmt: skip
        trainer.train()
        return trainer, trainer.evaluate()


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked, the encoder frozen"])
def test_losses_and_texts_are_those_of_a_plain_program(model: str, masked: bool) -> None:
    compare(model, record("train", 24), record("dev", 8, 1), masked=masked)


@on_real_data
def test_losses_on_speech_are_those_of_a_plain_program(model: str) -> None:
    """Digits spoken by people, at 16 kHz, which Whisper needs."""
    files = []
    for name in ("train", "validation"):
        rows = read_table(f"audio-classification/fsdd-{name}")[:: 100 if name == "train" else 38]
        for number, row in enumerate(rows):
            samples = scipy.signal.resample_poly(soundfile.read(row["file"], dtype="float32")[0], 2, 1)
            save_recording(samples, Path(name, f"{number:03}.wav"), RATE)
            rows[number] = {"audio": f"{name}/{number:03}.wav", "text": row["text"].capitalize()}
        files.append(write_rows(Path({"train": "train", "validation": "dev"}[name] + ".jsonl"), rows))
    compare(model, *files, masked=False)


def compare(model: str, train: str, dev: str, *, masked: bool) -> None:
    files = ["--train_file", train, "--validation_file", dev]
    words = ["--model_name_or_path", model, *files, *SHORT]
    masks: dict[str, Any] = {}
    if masked:
        masks = {"apply_spec_augment": True, "mask_time_prob": 0.3, "mask_time_length": 4}
        overrides = ["--config_overrides", "mask_time_prob=0.3,mask_time_length=4"]
        words += ["--apply_spec_augment", "--freeze_encoder", *overrides]
    finished = run("run_speech_recognition_seq2seq.py", words)
    theirs, metrics = plain_program(model, freeze=masked, masks=masks)
    for trainer in (finished.trainer, theirs):  # sums of the same terms in another order
        for log in trainer.state.log_history:
            log.pop("eval_wer", None), log.pop("eval_cer", None)
    assert_same_run(finished.trainer, theirs)
    for name in ("eval_wer", "eval_cer"):
        assert finished.metrics[name] == pytest.approx(metrics[name])


def save_multilingual(directory: str, model: str) -> str:
    """A directory with a model that has two languages."""
    special = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|zh|>", "<|de|>"]
    special += ["<|translate|>", "<|transcribe|>", "<|notimestamps|>"]
    letters = [*"abcdefghijklmnopqrstuvwxyz", "Ġ"]
    tokenizer = transformers.WhisperTokenizer(
        vocab={token: number for number, token in enumerate([*letters, *special])}, merges=[],
        additional_special_tokens=special[1:], language="english", task="transcribe", pad_token="<|endoftext|>",
    )  # fmt: skip
    config = transformers.AutoConfig.from_pretrained(model)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in special}
    config.vocab_size, config.decoder_start_token_id = len(tokenizer), ids["<|startoftranscript|>"]
    config.pad_token_id = config.eos_token_id = config.bos_token_id = ids["<|endoftext|>"]
    network = transformers.WhisperForConditionalGeneration(config)
    made = network.generation_config
    made.is_multilingual, made.max_length, made._from_model_config = True, 14, False
    made.lang_to_id = {"<|en|>": ids["<|en|>"], "<|de|>": ids["<|de|>"]}
    made.task_to_id = {"transcribe": ids["<|transcribe|>"], "translate": ids["<|translate|>"]}
    made.no_timestamps_token_id = ids["<|notimestamps|>"]
    for part in (network, tokenizer, transformers.AutoFeatureExtractor.from_pretrained(model)):
        part.save_pretrained(directory)
    return directory


def test_language_and_task_are_in_labels_and_in_generated_texts(model: str) -> None:
    files = ["--train_file", record("train", 8), "--validation_file", record("dev", 4), *SHORT]
    words = ["--model_name_or_path", save_multilingual("two", model), *files]
    finished = run(TASK, [*words, "--language", "german", "--task", "translate"])
    tokenizer = transformers.AutoTokenizer.from_pretrained("out")
    prefix = tokenizer.convert_tokens_to_ids(["<|startoftranscript|>", "<|de|>", "<|translate|>", "<|notimestamps|>"])
    row = finished.trainer.train_dataset[0]
    assert row["labels"][:4] == prefix
    batch = finished.trainer.data_collator([row, row])
    assert batch["labels"][0][:3].tolist() == prefix[1:]  # the model adds the first one itself
    saved = transformers.GenerationConfig.from_pretrained("out")
    assert (saved.language, saved.task, saved.forced_decoder_ids) == ("german", "translate", None)
    loaded = transformers.WhisperForConditionalGeneration.from_pretrained("out")
    written = loaded.generate(input_features=torch.tensor(row["input_features"])[None], return_dict_in_generate=True)
    assert written["sequences"][0][:4].tolist() == prefix
    with pytest.raises(ConfigError, match=r"(?s)--language german with a model of one language.*no tokens for lang"):
        run(TASK, ["--model_name_or_path", model, *files, "--language", "german"])


WRONG: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "no text": ({"text": " "}, [], "train.jsonl, row 3, column 'text': there is no text to recognize"),
    "a long text": (
        {"text": "nine " * 20},
        [],
        "row 3, column 'text': the text has .* tokens, the decoder 16 positions",
    ),
    "masks that are none": (
        {},
        ["--apply_spec_augment", "--config_overrides", "mask_time_prob=0"],
        "--apply_spec_augment without masks.*mask_time_prob",
    ),
    "forced tokens": ({}, ["--forced_decoder_ids", "[1]"], r"--forced_decoder_ids \[1\]"),
    "no generation": ({}, ["--do_predict", "--predict_with_generate", "false"], "--predict_with_generate false"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes_are_named(model: str, mistake: str) -> None:
    values, more, message = WRONG[mistake]
    file = record("train", 6)
    rows = read_rows(Path(file))
    rows[2].update(values)
    write_rows(Path(file), rows)
    words = ["--model_name_or_path", model, "--train_file", file, "--do_train", "--train_val_split", "0", *SHORT]
    with pytest.raises((DataError, ConfigError), match=f"(?s){message}"):
        run(TASK, [*words, *more])


def test_long_texts_are_skipped(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = record("train", 6)
    rows = read_rows(Path(file))
    rows[2]["text"] = "nine " * 20
    write_rows(Path(file), rows)
    words = ["--model_name_or_path", model, "--train_file", file, "--do_train", "--train_val_split", "0", *SHORT]
    assert run(TASK, [*words, "--skip_bad_rows"]).metrics["train_samples"] == 5
    assert "skipped train.jsonl, row 3, column 'text': the text has 22 tokens" in capsys.readouterr().err


def test_a_new_whisper_has_windows_of_whole_seconds() -> None:
    words = ["--model_type", "whisper", "--train_tokenizer", "--train_file", record("train", 4), "--do_train", *SHORT]
    with pytest.raises(ConfigError, match=r"(?s)max_source_positions=70 is no whole number.*max_source_positions=50"):
        run(TASK, [*words, "--config_overrides", "max_source_positions=70"])
    with pytest.raises(ConfigError, match="--sampling_rate 8000 with Whisper"):
        run(TASK, [*words, "--sampling_rate", "8000"])
