"""Sample for semantic segmentation: shapes of four colours; the colour is the class, the ground none of them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np

from . import Sample
from .sentences import create_random, pick
from .shapes import COLORS, SHAPES, draw_shape, save_picture

SIZES = (("train", 200), ("validation", 60), ("test", 20))
TINY_SEGFORMER = {
    "model_type": "segformer",
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "sr_ratios": [2, 1],
    "hidden_sizes": [16, 32],
    "patch_sizes": [3, 3],
    "strides": [2, 2],
    "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2],
    "decoder_hidden_size": 32,
    "classifier_dropout_prob": 0.0,
    "drop_path_rate": 0.0,
}
OPTIONS = (
    "--image_size 32 --do_train --do_eval --do_predict --num_train_epochs 6 --per_device_train_batch_size 16 "
    "--learning_rate 5e-3 --eval_strategy epoch --logging_steps 20 --report_to none"
)


def write_sample(directory: Path) -> Sample:
    """Draw shapes and their masks."""
    numbers, colors, ground = create_random(0), tuple(COLORS), 0
    for split, count in SIZES:
        for number in range(count):
            color = pick(colors, numbers)
            picture, mask = draw_shape(pick(SHAPES, numbers), color, numbers)
            save_picture(picture, directory / split / "images" / f"{number:03}.png")
            label = np.where(mask, 1 + colors.index(color), 0).astype(np.uint8)
            save_picture(label, directory / split / "masks" / f"{number:03}.png")
            ground += int((~mask).sum()) if split == "validation" else 0
    config, labels = directory / "config.json", directory / "labels.json"
    config.write_text(json.dumps(TINY_SEGFORMER))
    labels.write_text(json.dumps(["ground", *colors]))
    words = [word for split, _ in SIZES for word in (f"--{split}_dir", str(directory / split))]
    words += ["--config_name", str(config), "--id2label", str(labels), *shlex.split(OPTIONS)]
    baseline = ground / (dict(SIZES)["validation"] * 32 * 32) / (1 + len(colors))
    return Sample(words, "eval_mean_iou", baseline, "the ground everywhere")
