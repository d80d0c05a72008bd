"""Training of a tokenizer, of the kind that a model was made for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .models import import_transformers


@dataclass(frozen=True)
class Style:
    """Text format of a family of models: pieces, special tokens by purpose, and their positions."""

    pieces: str  # wordpiece, bytes or unigram
    special: dict[str, str]
    single: str | None = None  # around one text, in the syntax of `tokenizers`' TemplateProcessing
    pair: str | None = None
    left: bool = False  # pads on the left
    segments: bool = False  # marks for every token whether it belongs to the first or to the second text


BERT = Style(
    pieces="wordpiece",
    special={f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
    single="[CLS] $A [SEP]",
    pair="[CLS] $A [SEP] $B:1 [SEP]:1",
    segments=True,
)
_ANGLED = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}
BART = Style(
    pieces="bytes",
    special={**_ANGLED, "cls_token": "<s>", "sep_token": "</s>"},
    single="<s> $A </s>",
    pair="<s> $A </s> </s> $B </s>",
)
GPT = Style(pieces="bytes", special={name: token for name, token in _ANGLED.items() if name != "mask_token"})
T5 = Style(
    pieces="unigram",
    special={"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
    single="$A </s>",
    pair="$A </s> $B </s>",
)
XLNET = Style(
    pieces="unigram",
    special={**_ANGLED, "cls_token": "<cls>", "sep_token": "<sep>"},
    single="$A:0 <sep>:0 <cls>:2",
    pair="$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2",
    left=True,
    segments=True,
)
_BY_TYPE = {
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5", "pegasus", "marian"), T5),
    **dict.fromkeys(("bart", "mbart", "led", "roberta", "xlm-roberta", "camembert", "longformer", "m2m_100"), BART),
    **dict.fromkeys(("gpt2", "gpt_neo", "gpt_neox", "opt", "bloom", "llama", "mistral", "qwen2", "qwen3"), GPT),
    "xlnet": XLNET,
}


def choose_style(config: Any, model_class: str) -> Style:
    """Return the style of a model's family; for an unknown one, by the purpose of the model."""
    if config.model_type in _BY_TYPE:
        return _BY_TYPE[config.model_type]
    if getattr(config, "is_encoder_decoder", False):
        return BART
    if "CausalLM" in model_class:
        return GPT
    return replace(BERT, segments=getattr(config, "type_vocab_size", 0) > 1)


def train_tokenizer(texts: Iterable[str], vocab_size: int, style: Style) -> Any:
    """Train a fast tokenizer on texts; the same texts make the same one."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: PLC0415

    special = list(dict.fromkeys(style.special.values()))
    options = {"vocab_size": vocab_size, "special_tokens": special, "show_progress": False}
    unknown = style.special["unk_token"]
    if style.pieces == "wordpiece":
        made = Tokenizer(models.WordPiece(unk_token=unknown))
        made.normalizer = normalizers.BertNormalizer(lowercase=False)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        made.model = models.WordPiece(_train_wordpieces(made, texts, options), unk_token=unknown)
        made.add_special_tokens(special)
    elif style.pieces == "bytes":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        made.train_from_iterator(texts, trainers.BpeTrainer(**options, initial_alphabet=alphabet))
    else:
        made = Tokenizer(models.Unigram())
        made.normalizer = normalizers.NFKC()
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        made.decoder = decoders.Metaspace()
        made.train_from_iterator(texts, trainers.UnigramTrainer(**options, unk_token=unknown))
        pieces = _sort_pieces(json.loads(made.to_str())["model"]["vocab"], special)
        made.model = models.Unigram(pieces, [piece for piece, _ in pieces].index(unknown))
    if style.single is not None:
        made.post_processor = processors.TemplateProcessing(
            single=style.single,
            pair=style.pair,
            special_tokens=[(token, made.token_to_id(token)) for token in special],
        )
    return import_transformers().PreTrainedTokenizerFast(
        tokenizer_object=made,
        padding_side="left" if style.left else "right",
        model_input_names=["input_ids", *(["token_type_ids"] if style.segments else []), "attention_mask"],
        **style.special,
    )


def _train_wordpieces(like: Any, texts: Iterable[str], options: Mapping[str, Any]) -> dict[str, int]:
    """Return the pieces and their numbers.

    Trained twice: the trainer numbers letters in a random order, and among equally frequent pairs prefers those with
    lower numbers, so the letters have to be numbered beforehand.
    """
    from tokenizers import Tokenizer, models, trainers  # noqa: PLC0415

    def train(**more: Any) -> dict[str, int]:
        made = Tokenizer(models.WordPiece(unk_token=like.model.unk_token))
        made.normalizer, made.pre_tokenizer = like.normalizer, like.pre_tokenizer
        made.train_from_iterator(texts, trainers.WordPieceTrainer(**{**options, **more}))
        return made.get_vocab()

    texts = list(texts) if iter(texts) is texts else texts
    special = options["special_tokens"]
    letters = sorted(train(vocab_size=0).keys() - set(special))
    return train(special_tokens=[*special, *letters])


def _sort_pieces(pieces: Iterable[tuple[str, float]], special: Sequence[str]) -> list[tuple[str, float]]:
    """Return the pieces of a unigram model by likelihood, without what is random in them.

    Random are the last digits, and which of the letters that are not pieces by themselves gets which of the lowest
    scores: the trainer adds them at the end, each 0.0001 more likely than the one before.
    """
    scores = {piece: round(score, 9) for piece, score in pieces if piece not in special}
    letters = [piece for piece in scores if len(piece) == 1]
    lowest = min(scores.values())
    added = sorted(piece for piece in letters if scores[piece] - lowest <= 0.0001 * len(letters))
    scores |= dict(zip(added, sorted(scores[piece] for piece in added), strict=True))
    others = sorted(scores, key=lambda piece: (-scores[piece], piece))
    return [*((piece, 0.0) for piece in special), *((piece, scores[piece]) for piece in others)]
