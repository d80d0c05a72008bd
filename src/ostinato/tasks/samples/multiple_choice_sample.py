"""Sample for multiple choice: beginnings with four endings, three of which begin in their middle."""

from __future__ import annotations

import random
from pathlib import Path

from ..rows import find_most_common
from . import Sample, build_command, build_tiny_model_options, write_rows
from .sentences import PEOPLE, PLACES, SUBJECTS, create_random, pick

CHOICES = 4


def write_sample(directory: Path) -> Sample:
    """Write rows with four endings, one of which has its words in order."""
    numbers, files, baseline = create_random(0), {}, 0.0
    for split, count in (("train", 400), ("validation", 120), ("test", 120)):
        rows = []
        for _ in range(count):
            label, subject = numbers.randrange(CHOICES), pick(tuple(SUBJECTS), numbers)
            endings = {f"ending{i}": _build_ending(subject, numbers, in_order=i == label) for i in range(CHOICES)}
            context = f"{pick(PEOPLE, numbers)} is in {pick(PLACES, numbers)}."
            rows.append({"sent1": context, "sent2": "Everybody", **endings, "label": label})
        files[split] = write_rows(directory / f"{split}.jsonl", rows)
        baseline = find_most_common(row["label"] for row in rows)[1] if split == "validation" else baseline
    words = build_command(
        files,
        build_tiny_model_options(
            "bert", hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
        ),
        "--do_train --do_eval --do_predict --max_seq_length 48",
        "--num_train_epochs 3 --per_device_train_batch_size 16 --learning_rate 3e-3 --eval_strategy epoch",
        "--logging_steps 20 --report_to none",
    )
    return Sample(words, "eval_accuracy", baseline, "always choosing the most frequent place")


def _build_ending(subject: str, numbers: random.Random, *, in_order: bool) -> str:
    verb = pick(("likes", "hears", "sees", "wants"), numbers)
    words = [verb, "the", pick(SUBJECTS[subject], numbers), "and", "the", pick(SUBJECTS[subject], numbers)]
    first = 0 if in_order else numbers.randrange(1, len(words))
    return " ".join([*words[first:], *words[:first]]) + "."
