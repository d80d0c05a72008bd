"""Audio classification: its sample, the same losses as a plain program of transformers, augmentation, wrong files."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sklearn.metrics import f1_score

from ostinato import DataError
from ostinato.tasks import run
from ostinato.tasks.samples.tones import INSTRUMENTS, RATE, save_recording, synthesize_note
from tests.support.apis import guest
from tests.support.real_data import copy_digits, on_real_data
from tests.support.task_runs import assert_same_run, plain_arguments, read_rows, write_rows

soundfile = pytest.importorskip("soundfile")
TASK = "audio-classification"
NAMES = tuple(INSTRUMENTS)
SHORT = [
    *("--num_train_epochs", "1", "--per_device_train_batch_size", "8", "--logging_steps", "1"),
    *("--learning_rate", "1e-3", "--report_to", "none", "--seed", "7", "--output_dir", "out"),
    *("--save_strategy", "no", "--rehearse", "false"),
]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def record(directory: Path, count: int, seed: int = 0, names: tuple[str, ...] = NAMES) -> Path:
    """A folder for each instrument, with notes of a tenth to a fifth of a second."""
    numbers = random.Random(seed)
    for number in range(count):
        name = names[number % len(names)]
        note = synthesize_note(name, numbers)[: numbers.randrange(RATE // 10, RATE // 5)]
        save_recording(note, directory / name / f"{number:03}.wav")
    return directory


def save_model(directory: Path, kind: str) -> str:
    """A directory with a small model for the four instruments, and its feature extractor."""
    labels = {"id2label": dict(enumerate(NAMES)), "label2id": {name: number for number, name in enumerate(NAMES)}}
    transformers.set_seed(3)
    if kind == "wav2vec2":
        config = transformers.Wav2Vec2Config(
            **SIZES, **labels, conv_dim=(8, 8), conv_kernel=(16, 8), conv_stride=(8, 8), num_feat_extract_layers=2,
            feat_extract_norm="layer", do_stable_layer_norm=True, num_conv_pos_embeddings=4,
            num_conv_pos_embedding_groups=2, classifier_proj_size=16, mask_time_prob=0.2, mask_time_length=4,
        )  # fmt: skip
        model: Any = transformers.Wav2Vec2ForSequenceClassification(config)
        extractor: Any = transformers.Wav2Vec2FeatureExtractor(sampling_rate=RATE)
    else:
        config = transformers.ASTConfig(**SIZES, **labels, num_mel_bins=16, max_length=24, patch_size=8)
        model = transformers.ASTForAudioClassification(config)
        extractor = transformers.ASTFeatureExtractor(sampling_rate=RATE, num_mel_bins=16, max_length=24)
    model.save_pretrained(directory)
    extractor.save_pretrained(directory)
    return str(directory)


@pytest.fixture(scope="module")
def model(shelf: Path) -> str:
    return save_model(shelf / "wav2vec2", "wav2vec2")


def weights_of(finished: Any) -> list[torch.Tensor]:
    return [weight.clone() for weight in finished.trainer.model.state_dict().values()]


def test_the_sample_is_learned() -> None:
    finished = run(
        TASK, ["--sample", "--max_train_samples", "160", "--num_train_epochs", "3", "--eval_strategy", "no"]
    )
    assert finished.sample is not None
    assert finished.metrics["eval_accuracy"] > finished.sample.baseline + 0.2
    home = Path("runs") / TASK
    predicted = read_rows(home / "predictions.jsonl")
    assert np.mean([one["prediction"] == one["label"] for one in predicted]) == finished.metrics["predict_accuracy"]
    for one in predicted:
        assert (home / "data/test" / one["audio"]).is_file()
        assert sum(one["probabilities"].values()) == pytest.approx(1, abs=1e-3)
    assert (home / "report.html").read_text().count("data:image/png;base64,") == 24


def plain_program(model: str, train: Path, dev: Path) -> Any:
    """What somebody who knows transformers would write for recordings in folders."""
    transformers.set_seed(7)
    network = transformers.AutoModelForAudioClassification.from_pretrained(model)
    if hasattr(network, "freeze_feature_encoder"):
        network.freeze_feature_encoder()
    mask = {"return_attention_mask": True} if hasattr(network, "freeze_feature_encoder") else {}
    extractor = transformers.AutoFeatureExtractor.from_pretrained(model, **mask)

    def features(directory: Path) -> list[dict[str, Any]]:
        rows = []
        for label, folder in enumerate(sorted(directory.iterdir())):
            for path in sorted(folder.iterdir()):
                made = extractor(soundfile.read(path, dtype="float32")[0], sampling_rate=RATE)
                rows.append({**{key: values[0] for key, values in made.items()}, "labels": label})
        return rows

    def metric(prediction: Any) -> dict[str, float]:
        chosen, labels = prediction.predictions.argmax(-1), prediction.label_ids
        share = float((chosen == labels).mean())
        return {"accuracy": share, "f1_macro": f1_score(labels, chosen, average="macro", zero_division=0)}

    with guest("transformers"):
        trainer = transformers.Trainer(
            model=network,
            args=plain_arguments(1e-3, num_train_epochs=1),
            train_dataset=features(train),
            eval_dataset=features(dev),
            compute_metrics=metric,
            processing_class=extractor,
        )
        trainer.train()
        return trainer, trainer.evaluate()


@pytest.mark.parametrize("kind", ["wav2vec2", "a spectrogram transformer"])
def test_losses_and_metrics_are_those_of_a_plain_program(shelf: Path, kind: str) -> None:
    workers = "2" if kind == "wav2vec2" else "0"
    train, dev = record(Path("train"), 24, 1), record(Path("dev"), 12, 2)
    compare(save_model(shelf / "m", kind), train, dev, "--dataloader_num_workers", workers)


@on_real_data
def test_losses_on_speech_are_those_of_a_plain_program(model: str) -> None:
    compare(model, copy_digits(Path("train"), "0123", 2), copy_digits(Path("dev"), "0123", 1, first=9))


def compare(model: str, train: Path, dev: Path, *more: str) -> None:
    words = ["--model_name_or_path", model, "--train_dir", str(train), "--validation_dir", str(dev), *SHORT]
    finished = run("run_audio_classification.py", [*words, *more])
    theirs, metrics = plain_program(model, train, dev)
    assert_same_run(finished.trainer, theirs)
    assert finished.metrics["eval_loss"] == metrics["eval_loss"]
    assert finished.metrics["eval_accuracy"] == metrics["eval_accuracy"]


def test_augmentation_is_the_same_for_any_number_of_workers_and_after_a_break(model: str) -> None:
    train = record(Path("train"), 24)
    words = ["--model_name_or_path", model, "--train_dir", str(train), "--do_train", *SHORT, "--num_train_epochs", "2"]
    windows = ["--max_length_seconds", "0.08", "--augment_gain_db", "6", "--augment_noise_snr_db", "20"]
    alone = weights_of(run(TASK, [*words, *windows]))
    saved = ["--dataloader_num_workers", "2", "--save_strategy", "steps", "--save_steps", "2"]
    together = weights_of(run(TASK, [*words, *windows, *saved, "--output_dir", "two"]))
    resumed = ["--output_dir", "two", "--resume_from_checkpoint", "two/checkpoint-2"]
    again = run(TASK, [*words, *windows, *resumed])
    assert [log["step"] for log in again.trainer.state.log_history if "loss" in log] == [1, 2, 3, 4, 5, 6]
    plain = weights_of(run(TASK, [*words, "--output_dir", "three"]))
    assert all(map(torch.equal, alone, together))
    assert all(map(torch.equal, alone, weights_of(again)))
    assert not all(map(torch.equal, alone, plain))


def test_spectrograms_are_masked(shelf: Path) -> None:
    words = ["--model_name_or_path", save_model(shelf / "ast", "ast"), "--train_dir", str(record(Path("train"), 8))]
    finished = run(TASK, [*words, "--do_train", "--train_val_split", "0", "--spec_augment", *SHORT])
    rows = finished.trainer.train_dataset
    first, second = rows[0]["input_values"], rows[0]["input_values"]
    assert first.shape == (24, 16)
    assert not np.array_equal(first, second)  # masks are drawn anew
    assert (first == second).mean() > 0.2
    wave = save_model(shelf / "wave", "wav2vec2")
    with pytest.raises(ValueError, match="--spec_augment without a spectrogram"):
        run(TASK, ["--model_name_or_path", wave, "--train_dir", "train", "--do_train", "--spec_augment", *SHORT])


def test_tables_other_rates_and_channels(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    note, rows = synthesize_note("flute", random.Random(0)), []
    for number in range(8):
        both = np.stack([note, note], axis=1) if number % 2 else note
        soundfile.write(f"{number}.flac", both, RATE if number % 4 else 4 * RATE)
        rows.append({"file": f"{number}.flac", "label": NAMES[number % 4]})
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("rows.jsonl"), rows), *SHORT]
    finished = run(TASK, [*words, "--train_val_split", "0", "--do_train", "--decoded_cache_dir", "decoded"])
    assert len(list(Path("decoded").rglob("*.npy"))) == 8
    assert np.array_equal(
        finished.trainer.train_dataset[1]["input_values"], finished.trainer.train_dataset[3]["input_values"]
    )
    told = capsys.readouterr().err
    assert "train: 8 recordings of 3.2 seconds; 32000 Hz (2) are resampled to 8000 Hz; 4 are mixed down" in told


WRONG = {
    "silent": (
        lambda path: soundfile.write(path, np.zeros(800), RATE),
        r"row 7(, column 'audio')?: clarinet/005.wav is silent",
    ),
    "no bytes": (lambda path: path.write_bytes(b""), r"train, row 7(, column 'audio')?: clarinet/005.wav is empty"),
    "a text": (
        lambda path: path.write_text("no sound"),
        r"row 7(, column 'audio')?: clarinet/005.wav is no recording",
    ),
    "cut off": (
        lambda path: path.write_bytes(path.read_bytes()[:400]),
        r"row 7(, column 'audio')?: clarinet/005.wav is cut off",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_an_unreadable_file_is_named_or_skipped(model: str, mistake: str, capsys: pytest.CaptureFixture[str]) -> None:
    damage, message = WRONG[mistake]
    train, dev = record(Path("train"), 20), record(Path("dev"), 8)
    damage(train / "clarinet/005.wav")
    words = ["--model_name_or_path", model, "--train_dir", str(train), *SHORT]
    with pytest.raises(DataError, match=message):
        run(TASK, [*words, "--do_train", "--train_val_split", "0"])
    damage(dev / "bell/000.wav")
    finished = run(TASK, [*words, "--validation_dir", str(dev), "--test_dir", str(dev), "--skip_bad_rows"])
    assert list(finished.trainer.skipped_rows) == [6]
    assert (finished.metrics["eval_samples"], finished.metrics["predict_samples"]) == (7, 7)
    assert re.search(r"skipped dev, row 1(, column 'audio')?: bell/000.wav", capsys.readouterr().err)


def test_short_recordings_and_missing_labels_are_named_or_skipped(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record(Path("train"), 8)
    soundfile.write("train/short.wav", np.full(20, 0.1) * np.arange(20), RATE)
    rows = [{"audio": f"train/{name}/{n:03}.wav", "label": name} for n, name in enumerate(NAMES * 2)]
    rows[2]["label"], rows[5]["audio"] = None, "train/short.wav"
    words = ["--model_name_or_path", model, "--train_file", write_rows(Path("rows.jsonl"), rows), *SHORT]
    words += ["--train_val_split", "0", "--do_train"]
    with pytest.raises(DataError, match=r"rows.jsonl, row 3, column 'label': there is no label"):
        run(TASK, words)
    finished = run(TASK, [*words, "--skip_bad_rows"])
    assert finished.metrics["train_samples"] == 6
    told = capsys.readouterr().err
    assert "skipped rows.jsonl, row 3, column 'label': there is no label" in told
    assert "skipped rows.jsonl, row 6, column 'audio': the recording is too short" in told
    write_rows(Path("rows.jsonl"), [row for row in rows if row["label"]])
    with pytest.raises(DataError, match=r"rows.jsonl, row 5, column 'audio': the recording is too short"):
        run(TASK, words)
    predict = ["--model_name_or_path", model, "--test_file", "rows.jsonl", "--do_predict", "--skip_bad_rows", *SHORT]
    with pytest.raises(DataError, match=r"row 5, column 'audio': the recording is too short"):
        run(TASK, predict)


def test_a_label_with_one_recording(model: str) -> None:
    record(Path("train"), 8)
    note = synthesize_note("bell", random.Random(0))
    save_recording(note, Path("train/gong/000.wav"))
    with pytest.raises(DataError, match=r"the label 'gong' has one file only, gong/000.wav"):
        run(TASK, ["--model_name_or_path", model, "--train_dir", "train", *SHORT])
