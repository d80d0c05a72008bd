"""Recipes learn: every sample with ten seeds, and recipes for images and sound on real data, beat a baseline."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ostinato.tasks import run
from ostinato.tasks.catalog import RECIPES
from ostinato.tasks.samples.contrastive_image_text_sample import TINY_CLIP
from ostinato.tasks.samples.image_classification_sample import TINY_RESNET
from ostinato.tasks.samples.semantic_segmentation_sample import TINY_SEGFORMER
from ostinato.tasks.samples.speech_pretraining_sample import NEGATIVES, TINY_CODES, TINY_WAV2VEC2
from ostinato.tasks.samples.speech_recognition_ctc_sample import TINY_CONFORMER
from ostinato.tasks.samples.speech_recognition_seq2seq_sample import TINY_WHISPER
from tests.support.long_tests import long_only
from tests.support.real_data import CLOTHES, DIRECTORY, on_real_data, read_clothes, read_table, write_clothes

pytest.importorskip("soundfile")
pytest.importorskip("jiwer")


@long_only
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("task", RECIPES)
def test_a_sample_is_learned_with_every_seed(task: str, seed: int) -> None:
    finished = run(task, ["--sample", "--seed", str(seed)])
    assert finished.sample is not None
    assert finished.sample.is_beaten_by(finished.metrics), finished.metrics


# ---- real data: what the same answer to everything, or a mean, would reach ------------------------------------------


def find_commonest_label(file: str, column: str) -> float:
    """The share of the most frequent value of a column."""
    counts = Counter(row[column] for row in read_table(file))
    return max(counts.values()) / counts.total()


def measure_ground(file: str) -> float:
    """The mean IoU of no nucleus anywhere."""
    return float(np.mean([np.asarray(Image.open(row["label"])) == 0 for row in read_table(file)])) / 2


def measure_nearest_mean() -> float:
    """The accuracy of the kind of clothes whose mean image is nearest."""
    (images, labels), (others, truth) = read_clothes("train", 1500), read_clothes("t10k", 200)
    means = np.stack([images[labels == label].mean(axis=0) for label in range(len(CLOTHES))])
    distances = ((others[:, None] - means[None]) ** 2).sum(axis=(2, 3))
    return float((distances.argmin(axis=1) == truth).mean())


def measure_middle_image(power: int) -> float:
    """The loss of the mean (squares) or median of all images, pixel by pixel, with pixels from -1 to 1."""
    train, dev = (read_clothes(split, count)[0] / 127.5 - 1 for split, count in (("train", 1500), ("t10k", 200)))
    middle = train.mean(axis=0) if power == 2 else np.median(train, axis=0)
    return float((abs(dev - middle) ** power).mean())


@dataclass(frozen=True)
class Case:
    """A command on real data: seconds on one core, two minutes at most."""

    task: str
    config: dict[str, Any]
    words: str
    metric: str
    compute_baseline: Callable[[], float]
    lower_is_better: bool = False


def name_files(table: str) -> str:
    return f"--train_file {DIRECTORY / table}-train.jsonl --validation_file {DIRECTORY / table}-validation.jsonl "


CLOTHES_WORDS = "--train_dir train --validation_dir validation --per_device_train_batch_size 16 "
TINY_VIT = {"image_size": 28, "patch_size": 4, "num_channels": 1, "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": 128}  # fmt: skip
TINY_DECODER = {"decoder_hidden_size": 64, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 4,
                "decoder_intermediate_size": 128}  # fmt: skip
TINY_AST = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
            "num_mel_bins": 64, "max_length": 64, "frequency_stride": 8, "time_stride": 8}  # fmt: skip
PROMPTS, DIGITS = "speech-recognition/asterisk-en", "audio-classification/fsdd"
CASES = {
    "clothes": Case(
        "image-classification", {**TINY_RESNET, "num_channels": 1},
        CLOTHES_WORDS + "--image_size 28 --num_train_epochs 4 --learning_rate 5e-3 --crop_scale 0.8",
        "eval_accuracy", measure_nearest_mean,
    ),
    "masked clothes": Case(
        "image-pretraining-mae", {"model_type": "vit_mae", **TINY_VIT, **TINY_DECODER},
        CLOTHES_WORDS + "--norm_pix_loss false --base_learning_rate 5e-2 --crop_scale 0.8 --num_train_epochs 4",
        "eval_loss", lambda: measure_middle_image(2), lower_is_better=True,
    ),
    "clothes with holes": Case(
        "image-pretraining-mim", {"model_type": "vit", **TINY_VIT, "encoder_stride": 4},
        CLOTHES_WORDS + "--mask_patch_size 4 --base_learning_rate 5e-2 --crop_scale 0.8 --num_train_epochs 4",
        "eval_loss", lambda: measure_middle_image(1), lower_is_better=True,
    ),
    "nuclei": Case(
        "semantic-segmentation", TINY_SEGFORMER,
        name_files("semantic-segmentation/nuclei") + "--image_size 64 --num_train_epochs 3 --learning_rate 5e-3",
        "eval_mean_iou", lambda: measure_ground("semantic-segmentation/nuclei-validation"),
    ),
    "emoji": Case(
        "contrastive-image-text", TINY_CLIP,
        name_files("contrastive-image-text/twemoji") + "--train_tokenizer --vocab_size 1000 --max_seq_length 16 "
        "--num_train_epochs 8 --per_device_train_batch_size 64 --learning_rate 1e-3",
        "eval_image_to_text_recall_at_10", lambda: 10 / 200,
    ),
    "spoken digits": Case(
        "audio-classification", {"model_type": "audio-spectrogram-transformer", **TINY_AST},
        name_files(DIGITS) + "--num_train_epochs 3 --per_device_train_batch_size 16 --learning_rate 1e-3",
        "eval_accuracy", lambda: find_commonest_label(f"{DIGITS}-validation", "label"),
    ),
    "prompts by CTC": Case(
        "speech-recognition-ctc",
        {**TINY_CONFORMER, "hidden_size": 96, "output_hidden_size": 96, "intermediate_size": 192},
        name_files(PROMPTS) + "--chars_to_ignore .,?!- --ctc_zero_infinity "
        "--num_train_epochs 12 --learning_rate 3e-3 --warmup_steps 50",
        "eval_cer", lambda: 1.0, lower_is_better=True,
    ),
    "digits by Whisper": Case(
        "speech-recognition-seq2seq", TINY_WHISPER,
        name_files(DIGITS) + "--audio_column_name file --train_tokenizer --vocab_size 300 --max_train_samples 1200 "
        "--num_train_epochs 3 --learning_rate 2e-3 --warmup_steps 40 --predict_with_generate",
        "eval_wer", lambda: 1 - find_commonest_label(f"{DIGITS}-validation", "text"), lower_is_better=True,
    ),
    "prompts without texts": Case(
        "speech-pretraining", {**TINY_WAV2VEC2, **TINY_CODES},
        name_files(PROMPTS) + "--sampling_rate 8000 --min_duration_in_seconds 0.5 --max_duration_in_seconds 2 "
        "--mask_time_prob 0.3 --mask_time_length 2 --gumbel_temperature_decay 0.99 --num_train_epochs 4 "
        "--learning_rate 3e-3 --warmup_steps 20",
        "eval_contrastive_loss", lambda: math.log(1 + NEGATIVES), lower_is_better=True,
    ),
}  # fmt: skip


@on_real_data
@pytest.mark.parametrize("name", CASES)
def test_a_recipe_beats_its_baseline_on_real_data(name: str) -> None:
    case = CASES[name]
    if "clothes" in name:
        write_clothes(Path("train"), 1500, CLOTHES)
        write_clothes(Path("validation"), 200, CLOTHES, "t10k")
    Path("config.json").write_text(json.dumps(case.config))
    words = ["--config_name", "config.json", *case.words.split(), "--report_to", "none", "--save_strategy", "no"]
    measured, baseline = run(case.task, words).metrics[case.metric], case.compute_baseline()
    assert (measured < baseline) if case.lower_is_better else (measured > baseline), (measured, baseline)
