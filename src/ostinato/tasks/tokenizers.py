"""A tokenizer trained on the spot, of the kind that a model was made for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .models import import_transformers


@dataclass(frozen=True)
class Style:
    """How a family of models has its texts: pieces, special tokens by purpose, and where those stand."""

    pieces: str  # wordpiece, bytes or unigram
    special: dict[str, str]
    single: str | None = None  # around one text, in the language of `tokenizers`' TemplateProcessing
    pair: str | None = None
    left: bool = False  # pads on the left


BERT = Style(
    pieces="wordpiece",
    special={f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
    single="[CLS] $A [SEP]",
    pair="[CLS] $A [SEP] $B:1 [SEP]:1",
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
)
_BY_TYPE = {
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5", "pegasus", "marian"), T5),
    **dict.fromkeys(("bart", "mbart", "led", "roberta", "xlm-roberta", "camembert", "longformer", "m2m_100"), BART),
    **dict.fromkeys(("gpt2", "gpt_neo", "gpt_neox", "opt", "bloom", "llama", "mistral", "qwen2", "qwen3"), GPT),
    "xlnet": XLNET,
}


def style_of(config: Any, model_class: str) -> Style:
    """The style of a model's family; of one that is not known, by what the model is for."""
    if config.model_type in _BY_TYPE:
        return _BY_TYPE[config.model_type]
    if getattr(config, "is_encoder_decoder", False):
        return BART
    return GPT if "CausalLM" in model_class else BERT


def train_tokenizer(texts: Iterable[str], vocab_size: int, style: Style) -> Any:
    """A fast tokenizer made from texts; the same texts make the same one."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: PLC0415

    special = list(dict.fromkeys(style.special.values()))
    options = {"vocab_size": vocab_size, "special_tokens": special, "show_progress": False}
    unknown = style.special["unk_token"]
    if style.pieces == "wordpiece":
        made = Tokenizer(models.WordPiece(unk_token=unknown))
        made.normalizer = normalizers.BertNormalizer(lowercase=False)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        trainer: Any = trainers.WordPieceTrainer(**options)
    elif style.pieces == "bytes":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(**options, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    else:
        made = Tokenizer(models.Unigram())
        made.normalizer = normalizers.NFKC()
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        made.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(**options, unk_token=unknown)
    made.train_from_iterator(texts, trainer)
    if style.single is not None:
        made.post_processor = processors.TemplateProcessing(
            single=style.single,
            pair=style.pair,
            special_tokens=[(token, made.token_to_id(token)) for token in special],
        )
    return import_transformers().PreTrainedTokenizerFast(
        tokenizer_object=made, padding_side="left" if style.left else "right", **style.special
    )
