"""Tokenizers trained on the spot."""

from __future__ import annotations

import pytest

from ostinato.tasks.encoding import tokenizer_facts
from ostinato.tasks.samples.language import SUBJECTS, sentence_about, source
from ostinato.tasks.tokenizers import BART, BERT, GPT, T5, XLNET, Style, train_tokenizer

STYLES = {"BERT": BERT, "BART": BART, "GPT": GPT, "T5": T5, "XLNET": XLNET}


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_the_same_texts_make_the_same_tokenizer(style: Style) -> None:
    """So that what one command has encoded with it, the next finds. Few pieces: many pairs are equally common."""
    numbers = source(0)
    texts = [sentence_about(subject, numbers) for subject in SUBJECTS for _ in range(25)]
    first, *others = (train_tokenizer(iter(texts), 300, style) for _ in range(4))
    assert all(tokenizer_facts(other) == tokenizer_facts(first) for other in others)
    assert set(first.all_special_tokens) == set(style.special.values())
    assert first.decode(first("Anna in Lyon", add_special_tokens=False)["input_ids"]).split() == ["Anna", "in", "Lyon"]
