"""Tokenizers trained on the spot: the same every time, the same after a save, and known to the model's config."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers

from ostinato.tasks.feature_cache import describe_tokenizer
from ostinato.tasks.models import fit_config_to_tokenizer
from ostinato.tasks.samples.sentences import SUBJECTS, build_sentence, create_random
from ostinato.tasks.tokenizers import BART, BERT, GPT, T5, XLNET, Style, choose_style, train_tokenizer

STYLES = {"BERT": BERT, "BART": BART, "GPT": GPT, "T5": T5, "XLNET": XLNET}


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_the_same_texts_make_the_same_tokenizer(style: Style) -> None:
    """So that what one command has encoded with it, the next finds. Few pieces: many pairs are equally common."""
    numbers = create_random(0)
    texts = [build_sentence(subject, numbers) for subject in SUBJECTS for _ in range(25)]
    first, *others = (train_tokenizer(iter(texts), 300, style) for _ in range(4))
    assert all(describe_tokenizer(other) == describe_tokenizer(first) for other in others)
    assert set(first.all_special_tokens) == set(style.special.values())
    assert first.decode(first("Anna in Lyon", add_special_tokens=False)["input_ids"]).split() == ["Anna", "in", "Lyon"]


KINDS = {
    "bert": "AutoModelForMaskedLM",
    "roberta": "AutoModelForMaskedLM",
    "bart": "AutoModelForSeq2SeqLM",
    "gpt2": "AutoModelForCausalLM",
    "t5": "AutoModelForSeq2SeqLM",
    "xlnet": "AutoModelForSequenceClassification",
}


def texts() -> list[str]:
    numbers = create_random(1)
    return [build_sentence(list(SUBJECTS)[i % 4], numbers) for i in range(300)]


def trained(kind: str) -> tuple[transformers.PreTrainedTokenizerFast, transformers.PretrainedConfig]:
    config = transformers.AutoConfig.for_model(kind)
    return train_tokenizer(iter(texts()), 350, choose_style(config, KINDS[kind])), config


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer, config = trained(kind)
    fit_config_to_tokenizer(config, tokenizer)
    tokenizer.save_pretrained(tmp_path)
    config.save_pretrained(tmp_path)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for pair in (("Emil talked about the opera.",), ("Ünknown wörds 漢字 # 42", "and others")):
        assert dict(again(*pair)) == dict(tokenizer(*pair))
    assert again.special_tokens_map == tokenizer.special_tokens_map
    assert again.padding_side == tokenizer.padding_side == ("left" if kind == "xlnet" else "right")
    for text in texts()[:20]:
        assert again.decode(again(text)["input_ids"], skip_special_tokens=True) == text


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_knows_the_special_tokens(kind: str) -> None:
    tokenizer, config = trained(kind)
    fit_config_to_tokenizer(config, tokenizer)
    assert config.vocab_size == len(tokenizer)
    assert config.pad_token_id == tokenizer.pad_token_id == 0
    for name in ("bos_token_id", "eos_token_id"):
        assert getattr(config, name, None) == getattr(tokenizer, name), name
    if config.is_encoder_decoder:
        start = {"t5": tokenizer.pad_token_id, "bart": tokenizer.eos_token_id}[kind]
        assert config.decoder_start_token_id == start


def test_pairs_have_segments_where_the_model_knows_them() -> None:
    assert trained("bert")[0]("a", "b")["token_type_ids"] == [0, 0, 0, 1, 1]
    segments = trained("xlnet")[0]("Anna", "Emil")["token_type_ids"]
    assert segments == sorted(segments)
    assert (set(segments), segments.count(2)) == ({0, 1, 2}, 1)  # the last one is that of <cls>
    distil = transformers.AutoConfig.for_model("distilbert")
    assert "token_type_ids" not in train_tokenizer(texts(), 300, choose_style(distil, "AutoModel"))("a", "b")


def test_a_config_does_not_keep_the_numbers_of_other_tokens() -> None:
    tokenizer = trained("bert")[0]
    config = transformers.AutoConfig.for_model("mpnet")  # begins with token 0 and ends with token 2, by default
    fit_config_to_tokenizer(config, tokenizer)
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (None, None, 0)
