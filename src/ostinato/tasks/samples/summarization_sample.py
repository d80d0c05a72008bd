"""Sample for summarization: short reports in which one sentence reports an event, and the others none."""

from __future__ import annotations

from pathlib import Path

from ostinato.metrics import metric

from . import Sample, build_command, build_tiny_bart_options, write_rows
from .sentences import build_report_and_summary, create_random


def write_sample(directory: Path) -> Sample:
    """Write reports with a summary of who did what."""
    numbers, files, baseline = create_random(0), {}, 0.0
    for split, count in (("train", 800), ("validation", 100), ("test", 100)):
        pairs = [build_report_and_summary(numbers) for _ in range(count)]
        rows = [{"text": text, "summary": summary} for text, summary in pairs]
        files[split] = write_rows(directory / f"{split}.jsonl", rows)
        if split == "validation":
            first = [row["text"].partition(".")[0] for row in rows]
            baseline = 100 * metric("rouge1")((first, [row["summary"] for row in rows]))["rouge1"]
    words = build_command(
        files,
        build_tiny_bart_options(),
        "--do_train --do_eval --do_predict --predict_with_generate --max_source_length 64 --max_target_length 12",
        "--source_prefix 'summarize: ' --num_train_epochs 3",
        "--per_device_train_batch_size 16 --per_device_eval_batch_size 50",
        "--learning_rate 3e-3 --logging_steps 25 --report_to none",
    )
    return Sample(words, "eval_rouge1", baseline, "the first sentence instead of a summary")
