"""Sample for speech recognition by an encoder and a decoder: digits spoken by a synthesizer."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from . import VOCABULARY, Sample
from .tones import DIGITS, write_spoken_digits

TINY_WHISPER = {
    "model_type": "whisper",
    "d_model": 64,
    "num_mel_bins": 40,
    "max_source_positions": 100,  # two seconds
    "max_target_positions": 12,
    "dropout": 0.0,
    "init_std": 0.1,
    **{
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": 1, "attention_heads": 4, "ffn_dim": 128}.items()
    },
}

OPTIONS = (
    f"--train_tokenizer --vocab_size {VOCABULARY} --do_train --do_eval --do_predict "
    "--num_train_epochs 8 --per_device_train_batch_size 8 --learning_rate 2e-3 --warmup_steps 40 --logging_steps 30 "
    "--report_to none"
)


def write_sample(directory: Path) -> Sample:
    """Synthesize spoken digits, and write tables of them."""
    files = write_spoken_digits(directory, {"train": 240, "validation": 60, "test": 30})
    config = directory / "config.json"
    config.write_text(json.dumps(TINY_WHISPER))
    words = [word for split, file in files.items() for word in (f"--{split}_file", file)]
    words += ["--config_name", str(config), *shlex.split(OPTIONS)]
    texts = [json.loads(line)["text"].split() for line in Path(files["validation"]).read_text().splitlines()]
    return Sample(words, "eval_wer", compute_baseline(texts), "always writing the same digit", lower_is_better=True)


def compute_baseline(texts: Sequence[Sequence[str]]) -> float:
    """Return the lowest word error rate of one digit as the answer to everything.

    >>> compute_baseline([["one"], ["one", "two"], ["two", "three"]])
    0.6
    """
    rights = max(sum(digit in text for text in texts) for digit in DIGITS)
    return 1 - rights / sum(map(len, texts))
