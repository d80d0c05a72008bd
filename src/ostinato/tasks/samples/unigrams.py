"""Lines of text for language models, and the perplexity of guessing tokens by their frequency."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..tokenizers import Style, train_tokenizer
from . import VOCABULARY
from .sentences import SUBJECTS, build_sentence, create_random, pick

LINE_COUNTS = {"train": 1200, "validation": 120, "test": 60}
BASELINE_MEANING = "guessing every token by how frequent it is"


def write_lines(directory: Path) -> dict[str, str]:
    """Write a text file for each split, a sentence on each line; an unchanged file keeps its cache."""
    numbers, files = create_random(0), {}
    for split, count in LINE_COUNTS.items():
        text = "".join(build_sentence(pick(tuple(SUBJECTS), numbers), numbers) + "\n" for _ in range(count))
        path = directory / f"{split}.txt"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        files[split] = str(path)
    return files


def train_sample_tokenizer(files: Mapping[str, str], style: Style, *, keep_linebreaks: bool = False) -> Any:
    """Return the tokenizer that --train_tokenizer makes of the training lines."""
    return train_tokenizer(_read_lines(files["train"], keep_linebreaks), VOCABULARY, style)


def compute_unigram_perplexity(files: Mapping[str, str], tokenizer: Any, *, keep_linebreaks: bool = False) -> float:
    """Return the least perplexity on the validation lines that is possible without the context of a token."""
    lines = _read_lines(files["validation"], keep_linebreaks)
    return math.exp(compute_entropy([token for line in lines for token in tokenizer.tokenize(line)]))


def _read_lines(file: str, keep_linebreaks: bool) -> list[str]:
    return Path(file).read_text(encoding="utf-8").splitlines(keepends=keep_linebreaks)


def compute_entropy(tokens: Sequence[str]) -> float:
    """Return the entropy of the tokens' own frequencies, in nats.

    >>> round(math.exp(compute_entropy(["a", "b", "a", "b"])), 6)
    2.0
    """
    counts = Counter(tokens)
    return -sum(count / counts.total() * math.log(count / counts.total()) for count in counts.values())
