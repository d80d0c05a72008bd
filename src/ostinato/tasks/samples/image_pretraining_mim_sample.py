"""Sample for pretraining by masked image modeling: shapes of any colour, without labels."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from . import Sample
from .shapes import write_unlabelled_shapes

OVERRIDES = (
    "image_size=32,patch_size=4,hidden_size=64,"
    "num_hidden_layers=2,num_attention_heads=4,intermediate_size=128,encoder_stride=4"
)
OPTIONS = (
    f"--model_type vit --config_overrides {OVERRIDES} --mask_patch_size 4 --base_learning_rate 5e-2 "
    "--do_train --do_eval --do_predict --crop_scale 0.8 --num_train_epochs 8 --per_device_train_batch_size 16 "
    "--eval_strategy epoch --logging_steps 25 --report_to none"
)


def write_sample(directory: Path) -> Sample:
    """Draw shapes; the baseline is the loss of one colour for all hidden pixels."""
    folders, pictures = write_unlabelled_shapes(directory)
    values = pictures["validation"] / 127.5 - 1  # as the image processor scales them
    baseline = float((abs(values - np.median(values, axis=(0, 1, 2)))).mean())
    words = [word for split, folder in folders.items() for word in (f"--{split}_dir", str(folder))]
    return Sample(
        [*words, *shlex.split(OPTIONS)], "eval_loss", baseline, "the median colour everywhere", lower_is_better=True
    )
