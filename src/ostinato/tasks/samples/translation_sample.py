"""Sample for translation: English sentences and their German, assembled word by word."""

from __future__ import annotations

from pathlib import Path

from ostinato.metrics import metric

from . import Sample, command, tiny_bart, write_rows
from .sentences import english_and_german, source


def make(directory: Path) -> Sample:
    """Write sentences with a translation into German, which has cases and another word order."""
    numbers, files, baseline = source(0), {}, 0.0
    for split, count in (("train", 600), ("validation", 100), ("test", 100)):
        pairs = [english_and_german(numbers) for _ in range(count)]
        rows = [{"translation": {"en": english, "de": german}} for english, german in pairs]
        files[split] = write_rows(directory / f"{split}.jsonl", rows)
        if split == "validation":
            baseline = metric("chrf")(tuple(map(list, zip(*pairs, strict=True))))["chrf"]
    words = command(
        files,
        tiny_bart(),
        "--source_lang en --target_lang de",
        "--do_train --do_eval --do_predict --predict_with_generate --max_source_length 32 --max_target_length 24",
        "--num_train_epochs 3 --per_device_train_batch_size 16 --per_device_eval_batch_size 50",
        "--learning_rate 3e-3 --logging_steps 20 --report_to none",
    )
    return Sample(words, "eval_chrf", baseline, "leaving every sentence in English")
