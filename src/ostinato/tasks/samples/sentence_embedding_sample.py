"""Sample for sentence embedding: pairs of sentences about two subjects each, and how many of them they share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from ostinato.metrics import metric

from . import Sample, build_command, build_tiny_model_options, write_rows
from .sentences import PEOPLE, PLACES, SUBJECTS, create_random, pick


def write_sample(directory: Path) -> Sample:
    """Write pairs of sentences with a score of their similarity.

    Four points if both are about the same subjects, two if they share one of two, and one more for the same person,
    which is the only part that the words themselves show.
    """
    numbers, files, baseline = create_random(3), {}, 0.0
    for split, count in (("train", 900), ("validation", 150), ("test", 150)):
        rows = [_build_pair(numbers) for _ in range(count)]
        files[split] = write_rows(directory / f"{split}.jsonl", rows)
        if split == "validation":
            in_common = np.array([_compute_word_overlap(row["sentence1"], row["sentence2"]) for row in rows])
            baseline = metric("spearman")((in_common, np.array([row["score"] for row in rows])))["spearman"]
    words = build_command(
        files,
        build_tiny_model_options(
            "bert", hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
        ),
        "--do_train --do_eval --do_predict --max_seq_length 32",
        "--num_train_epochs 6 --per_device_train_batch_size 16 --learning_rate 3e-3 --eval_strategy epoch",
        "--logging_steps 50 --report_to none",
    )
    return Sample(words, "eval_spearman", baseline, "counting the words in common")


def _build_pair(numbers: Any) -> dict[str, Any]:
    subjects = tuple(SUBJECTS)
    who = [pick(PEOPLE[:4], numbers) for _ in range(2)]
    about = [{pick(subjects, numbers), pick(subjects, numbers)} for _ in range(2)]
    sentences = [_build_sentence(name, sorted(both), numbers) for name, both in zip(who, about, strict=True)]
    score = 4.0 * len(about[0] & about[1]) / max(map(len, about)) + float(who[0] == who[1])
    return {"sentence1": sentences[0], "sentence2": sentences[1], "score": score}


def _build_sentence(name: str, subjects: list[str], numbers: Any) -> str:
    words = [pick(SUBJECTS[subject], numbers) for subject in (subjects * 2)[:2]]
    return f"In {pick(PLACES, numbers)} {name} {pick(('spoke', 'wrote'), numbers)} of {words[0]} and {words[1]}."


def _compute_word_overlap(one: str, other: str) -> float:
    first, second = (set(re.findall(r"\w+", text.lower())) for text in (one, other))
    return len(first & second) / len(first | second)
