"""Sample for audio classification: notes of four instruments, in a folder for each."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from . import Sample
from .sentences import create_random
from .tiny_wav2vec2 import TINY_WAV2VEC2
from .tones import INSTRUMENTS, RATE, save_recording, synthesize_note

SIZES = (("train", 200), ("validation", 80), ("test", 40))
OPTIONS = (
    f"--sampling_rate {RATE} --max_length_seconds 0.4 --do_train --do_eval --do_predict --num_train_epochs 4 "
    "--per_device_train_batch_size 8 --learning_rate 3e-3 --warmup_steps 10 "
    "--eval_strategy epoch --logging_steps 20 --report_to none"
)


def write_sample(directory: Path) -> Sample:
    """Synthesize notes of four instruments."""
    numbers = create_random(0)
    for split, count in SIZES:
        for number in range(count):
            instrument = tuple(INSTRUMENTS)[number % len(INSTRUMENTS)]
            save_recording(synthesize_note(instrument, numbers), directory / split / instrument / f"{number:03}.wav")
    config = directory / "config.json"
    config.write_text(json.dumps(TINY_WAV2VEC2))
    words = [word for split, _ in SIZES for word in (f"--{split}_dir", str(directory / split))]
    words += ["--config_name", str(config), *shlex.split(OPTIONS)]
    return Sample(words, "eval_accuracy", 1 / len(INSTRUMENTS), "always guessing the same instrument")
