"""Sample for translation: English sentences and their German, assembled word by word."""

from __future__ import annotations

from pathlib import Path

from ostinato.metrics import metric

from . import Sample, build_command, build_tiny_bart_options, write_rows
from .sentences import build_translation_pair, create_random


def write_sample(directory: Path) -> Sample:
    """Write sentences with a translation into German, which has cases and another word order."""
    numbers, files, baseline = create_random(0), {}, 0.0
    for split, count in (("train", 600), ("validation", 100), ("test", 100)):
        pairs = [build_translation_pair(numbers) for _ in range(count)]
        rows = [{"translation": {"en": english, "de": german}} for english, german in pairs]
        files[split] = write_rows(directory / f"{split}.jsonl", rows)
        if split == "validation":
            baseline = metric("chrf")(tuple(map(list, zip(*pairs, strict=True))))["chrf"]
    words = build_command(
        files,
        build_tiny_bart_options(),
        "--source_lang en --target_lang de",
        "--do_train --do_eval --do_predict --predict_with_generate --max_source_length 32 --max_target_length 24",
        "--num_train_epochs 3 --per_device_train_batch_size 16 --per_device_eval_batch_size 50",
        "--learning_rate 3e-3 --logging_steps 20 --report_to none",
    )
    return Sample(words, "eval_chrf", baseline, "leaving every sentence in English")
