"""Sample for token classification: sentences with people, places and companies, some of which share their names."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ostinato.metrics import metric

from . import Sample, build_command, build_tiny_model_options, write_rows
from .sentences import COMPANIES, PEOPLE, PLACES, create_random, pick

PATTERNS = ("person went to place yesterday", "person works for company", "company has a house in place",
            "the train from place to place was late", "person of company met person", "rain fell in place today",
            "company and company share a hall")  # fmt: skip


def write_sample(directory: Path) -> Sample:
    """Write sentences with tags for people, places and companies. Surnames and company halls are names of places."""
    numbers, files, rows = create_random(0), {}, {}
    for split, count in (("train", 600), ("validation", 120), ("test", 120)):
        rows[split] = [_build_sentence(pick(PATTERNS, numbers), numbers) for _ in range(count)]
        files[split] = write_rows(directory / f"{split}.jsonl", rows[split])
    words = build_command(
        files,
        build_tiny_model_options(
            "bert", hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
        ),
        "--do_train --do_eval --do_predict --num_train_epochs 5 --per_device_train_batch_size 16",
        "--learning_rate 3e-3 --eval_strategy epoch --logging_steps 20 --report_to none",
    )
    baseline = _compute_tag_baseline(rows["train"], rows["validation"])
    return Sample(words, "eval_f1", baseline, "every word with its most frequent tag")


def _build_sentence(pattern: str, numbers: random.Random) -> dict[str, Any]:
    words, tags = [], []
    for word in pattern.split():
        named = _pick_name(word, numbers)
        words += named or [word]
        tags += [f"{'I' if i else 'B'}-{word.upper()}" for i, _ in enumerate(named)] or ["O"]
    return {"tokens": words, "ner_tags": tags}


def _pick_name(kind: str, numbers: random.Random) -> list[str]:
    """Return one or two words; the second of a person or company is the name of a place."""
    first = {"person": PEOPLE, "place": PLACES, "company": COMPANIES}.get(kind)
    if first is None:
        return []
    has_two = kind != "place" and numbers.random() < 0.6
    return [pick(first, numbers), *([pick(PLACES, numbers)] if has_two else [])]


def _compute_tag_baseline(train: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> float:
    """Return the F1 of tagging every word with its most frequent tag."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for row in train:
        for word, tag in zip(row["tokens"], row["ner_tags"], strict=True):
            seen[word][tag] += 1
    guesses = [[seen[word].most_common(1)[0][0] if seen[word] else "O" for word in row["tokens"]] for row in rows]
    return metric("seqeval")((guesses, [row["ner_tags"] for row in rows]))["f1"]
