"""Sample for question answering: generated short texts on who lives where and works for whom, with questions."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from ..rows import find_most_common
from . import Sample, build_command, build_tiny_model_options, write_rows
from .sentences import COMPANIES, PEOPLE, PLACES, create_random, pick

SIZES = (("train", 600), ("validation", 120), ("test", 120))
CONTEXTS = (
    "{who} lives in {where} and works for {whom}.",
    "In {where} lives {who}, who works for {whom}.",
    "{who} works for {whom} in the town of {where}.",
)
QUESTIONS = {"who": "Who works for {whom}?", "where": "In which town is {who}?", "whom": "Whom does {who} work for?"}


def write_sample(directory: Path) -> Sample:
    """Write texts with a question (who, where or for whom) that words of the text answer."""
    files, baseline = write_questions(directory)
    words = build_command(
        files,
        build_tiny_model_options(
            "bert", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        ),
        "--do_train --do_eval --do_predict --max_seq_length 48 --doc_stride 8 --pad_to_max_length false",
        "--num_train_epochs 8 --per_device_train_batch_size 16 --learning_rate 2e-3 --eval_strategy epoch",
        "--metric_for_best_model f1 --logging_steps 20 --report_to none",
    )
    return Sample(words, "eval_exact_match", baseline, "always giving the most frequent answer")


def write_questions(directory: Path, names: int = 20) -> tuple[dict[str, str], float]:
    """Write rows with `names` names of each kind; return the files, and the percentage of the commonest answer."""
    numbers, files, baseline = create_random(0), {}, 0.0
    for split, count in SIZES:
        rows = [build_question(f"{split}-{n}", numbers, names) for n in range(count)]
        files[split] = write_rows(directory / f"{split}.jsonl", rows)
        if split == "validation":
            baseline = 100 * find_most_common(row["answers"]["text"][0] for row in rows)[1]
    return files, baseline


def build_question(name: str, numbers: random.Random, names: int = 20) -> dict[str, Any]:
    """Return a text about a person, a question about it, and where its answer is.

    >>> row = build_question("1", create_random(1))
    >>> row["question"], row["context"]
    ('Who works for Bergbahn?', 'In Turin lives Emil, who works for Bergbahn.')
    """
    kinds = {"who": PEOPLE, "where": PLACES, "whom": COMPANIES}
    facts = {kind: pick(known[:names], numbers) for kind, known in kinds.items()}
    context, kind = pick(CONTEXTS, numbers).format(**facts), pick(tuple(QUESTIONS), numbers)
    return {
        "id": name,
        "context": context,
        "question": QUESTIONS[kind].format(**facts),
        "answers": {"text": [facts[kind]], "answer_start": [context.index(facts[kind])]},
    }
