"""Sample for speech recognition by CTC: digits spoken by a synthesizer, one to three in a recording."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from . import Sample
from .tones import RATE, write_spoken_digits

TINY_CONFORMER = {  # it reads spectrograms, from which it learns letters far sooner than from samples
    "model_type": "wav2vec2-bert",
    "hidden_size": 48,
    "output_hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "conv_depthwise_kernel_size": 7,
    "position_embeddings_type": None,
    "initializer_range": 0.05,
    "apply_spec_augment": False,
}

OPTIONS = (
    f"--sampling_rate {RATE} --do_train --do_eval --do_predict --num_train_epochs 3 "
    "--per_device_train_batch_size 8 --learning_rate 3e-3 --warmup_steps 20 --eval_strategy epoch --logging_steps 20 "
    "--report_to none"
)


def write_sample(directory: Path) -> Sample:
    """Synthesize spoken digits, and write tables of them."""
    files = write_spoken_digits(directory, {"train": 240, "validation": 60, "test": 30})
    config = directory / "config.json"
    config.write_text(json.dumps(TINY_CONFORMER))
    words = [word for split, file in files.items() for word in (f"--{split}_file", file)]
    words += ["--config_name", str(config), *shlex.split(OPTIONS)]
    return Sample(words, "eval_cer", 1.0, "writing nothing", lower_is_better=True)
