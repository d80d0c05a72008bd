"""Sample for pretraining on speech: digits spoken by a synthesizer, without their texts."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

from . import Sample
from .tiny_wav2vec2 import TINY_WAV2VEC2
from .tones import RATE, write_spoken_digits

NEGATIVES = 10
PITCH = (
    125.0  # its period is half a frame, so that all frames of a letter look alike, which takes long to learn otherwise
)
TINY_CODES = {
    "num_codevector_groups": 2,
    "num_codevectors_per_group": 16,
    "codevector_dim": 32,
    "proj_codevector_dim": 32,
    "num_negatives": NEGATIVES,
    "contrastive_logits_temperature": 0.1,
    "apply_spec_augment": True,
}

OPTIONS = (
    f"--sampling_rate {RATE} --min_duration_in_seconds 0.2 --max_duration_in_seconds 0.8 --mask_time_prob 0.3 "
    "--mask_time_length 2 --gumbel_temperature_decay 0.99 --do_train --do_eval --num_train_epochs 5 "
    "--per_device_train_batch_size 8 --learning_rate 3e-3 --warmup_steps 20 --eval_strategy epoch --logging_steps 20 "
    "--report_to none"
)


def write_sample(directory: Path) -> Sample:
    """Synthesize spoken digits."""
    files = write_spoken_digits(directory, {"train": 200, "validation": 60}, PITCH)
    config = directory / "config.json"
    config.write_text(json.dumps({**TINY_WAV2VEC2, **TINY_CODES}))
    words = [word for split, file in files.items() for word in (f"--{split}_file", file)]
    words += ["--config_name", str(config), *shlex.split(OPTIONS)]
    meaning = f"choosing blindly among a frame and {NEGATIVES} others"
    return Sample(words, "eval_contrastive_loss", math.log(1 + NEGATIVES), meaning, lower_is_better=True)
