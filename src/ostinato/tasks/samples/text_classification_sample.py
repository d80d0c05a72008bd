"""Sample for text classification: sentences about four subjects."""

from __future__ import annotations

from pathlib import Path

from ..rows import find_most_common
from . import Sample, build_command, build_tiny_model_options, write_rows
from .sentences import SUBJECTS, build_sentence, create_random, pick


def write_sample(directory: Path) -> Sample:
    """Write sentences labelled with one of four subjects."""
    numbers, files, baseline = create_random(0), {}, 0.0
    for split, count in (("train", 600), ("validation", 120), ("test", 120)):
        labels = [pick(tuple(SUBJECTS), numbers) for _ in range(count)]
        rows = [{"sentence": build_sentence(label, numbers), "label": label} for label in labels]
        files[split] = write_rows(directory / f"{split}.jsonl", rows)
        baseline = find_most_common(labels)[1] if split == "validation" else baseline
    words = build_command(
        files,
        build_tiny_model_options(
            "bert", hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
        ),
        "--do_train --do_eval --do_predict --max_seq_length 48 --pad_to_max_length false",
        "--num_train_epochs 4 --per_device_train_batch_size 16 --learning_rate 3e-3 --eval_strategy epoch",
        "--logging_steps 20 --report_to none",
    )
    return Sample(words, "eval_accuracy", baseline, "always guessing the most frequent label")
