"""Models and data that train in milliseconds. Every builder is deterministic and returns something fresh."""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import nn

VOCAB = 40


# ---------------------------------------------------------------------------------------------------- plain modules


class Regression(nn.Module):
    """A small MLP with a squared error; `output` chooses what `forward` returns."""

    def __init__(self, dim: int = 4, hidden: int = 16, dropout: float = 0.0, output: str = "dict") -> None:
        super().__init__()
        self.inner = nn.Linear(dim, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.drop = nn.Dropout(dropout)
        self.outer = nn.Linear(hidden, 1)
        self.output = output

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        logits = self.outer(self.drop(torch.tanh(self.norm(self.inner(x))))).squeeze(-1)
        loss = None if labels is None else nn.functional.mse_loss(logits, labels)
        if self.output == "tuple":
            return (logits,) if loss is None else (loss, logits)
        return {"logits": logits} if loss is None else {"loss": loss, "logits": logits}


class NormedRegression(Regression):
    """With a buffer that a forward in training mode changes, and a count of its calls."""

    def __init__(self) -> None:
        super().__init__(dropout=0.5)
        self.batch_norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        torch.rand(1), np.random.rand(), random.random()  # whatever draws
        return super().forward(self.batch_norm(x), labels)


class TiedLanguageModel(nn.Module):
    """A plain module whose head shares the weights of its embedding."""

    def __init__(self, vocab: int = VOCAB, hidden: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.mix = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.head(torch.tanh(self.mix(self.embedding(input_ids))))
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class DeafLanguageModel(TiedLanguageModel):
    """Takes any keyword, so it looks as if it used `num_items_in_batch`; it does not."""

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None, **kwargs: Any) -> Any:  # type: ignore[override]
        return super().forward(input_ids, labels)


def seeded(build: Any, *args: Any, seed: int = 0, **kwargs: Any) -> Any:
    """Build with the global generator at `seed`, and put the generator back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(*args, **kwargs)


def regression(**kwargs: Any) -> Regression:
    return seeded(Regression, **kwargs)


def tied() -> TiedLanguageModel:
    return seeded(TiedLanguageModel)


def deaf() -> DeafLanguageModel:
    return seeded(DeafLanguageModel)


# ------------------------------------------------------------------------------------------- models of transformers


def _of_transformers(model: str, config: str, **settings: Any) -> Any:
    from tests.support.apis import load_library

    library = load_library("transformers")
    return seeded(getattr(library, model), getattr(library, config)(**settings))


def bert(head: str = "SequenceClassification", *, dropout: float = 0.1, num_labels: int = 3, **settings: Any) -> Any:
    return _of_transformers(
        f"BertFor{head}",
        "BertConfig",
        vocab_size=VOCAB,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=settings.pop("max_position_embeddings", 32),
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=num_labels,
        **settings,
    )


def gpt2(*, loss_type: str | None = "ForCausalLM", dropout: float = 0.1) -> Any:
    model = _of_transformers(
        "GPT2LMHeadModel",
        "GPT2Config",
        vocab_size=VOCAB,
        n_positions=32,
        n_embd=16,
        n_layer=2,
        n_head=2,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=0,
    )
    if loss_type is not None:
        model.config.loss_type = loss_type
        model.loss_type = loss_type
    return model


def llama() -> Any:
    return _of_transformers(
        "LlamaForCausalLM",
        "LlamaConfig",
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )


def t5(*, dropout: float = 0.1) -> Any:
    return _of_transformers(
        "T5ForConditionalGeneration",
        "T5Config",
        vocab_size=VOCAB,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        dropout_rate=dropout,
        decoder_start_token_id=0,
        pad_token_id=0,
    )


def tokenizer() -> Any:
    """A tokenizer of whole words `w0 .. w39`; it can pad, which is what collators ask of it."""
    from tests.support.apis import load_library

    library = load_library("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = OrderedDict((word, i) for i, word in enumerate(["[PAD]", "[MASK]", *(f"w{i}" for i in range(2, VOCAB))]))
    inner = Tokenizer(models.WordLevel(dict(words), unk_token="w2"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return library.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", mask_token="[MASK]", unk_token="w2", model_max_length=32
    )


# --------------------------------------------------------------------------------------------------------------- data


def regression_rows(n: int = 24, dim: int = 4, seed: int = 1) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    rows = [[draw.gauss(0, 1) for _ in range(dim)] for _ in range(n)]
    return [{"x": x, "labels": sum(x) + draw.gauss(0, 0.1)} for x in rows]


def classification_rows(n: int = 24, length: int = 8, num_labels: int = 3, seed: int = 1) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [
        {
            "input_ids": [draw.randrange(2, VOCAB) for _ in range(length)],
            "attention_mask": [1] * length,
            "labels": draw.randrange(num_labels),
        }
        for _ in range(n)
    ]


def ragged_classification_rows(n: int = 24, num_labels: int = 3, seed: int = 1) -> list[dict[str, Any]]:
    """Rows of 3 to 10 tokens; they need a collator that pads."""
    draw = random.Random(seed)
    rows = []
    for _ in range(n):
        length = draw.randrange(3, 11)
        ids = [draw.randrange(2, VOCAB) for _ in range(length)]
        rows.append({"input_ids": ids, "attention_mask": [1] * length, "labels": draw.randrange(num_labels)})
    return rows


def token_rows(n: int = 20, num_labels: int = 3, seed: int = 1) -> list[dict[str, Any]]:
    """Rows of 3 to 10 tokens with one label each; some tokens are not labelled (-100)."""
    draw = random.Random(seed)
    rows = []
    for _ in range(n):
        length = draw.randrange(3, 11)
        ids = [draw.randrange(2, VOCAB) for _ in range(length)]
        labels = [draw.choice([-100, *range(num_labels)]) for _ in range(length)]
        rows.append({"input_ids": ids, "attention_mask": [1] * length, "labels": labels})
    return rows


def language_rows(n: int = 24, length: int = 12, seed: int = 1) -> list[dict[str, Any]]:
    """Rows of one length whose labels begin with a masked prompt (-100) of 0 to 9 tokens."""
    draw = random.Random(seed)
    rows = []
    for _ in range(n):
        ids = [draw.randrange(2, VOCAB) for _ in range(length)]
        prompt = draw.randrange(0, 10)
        rows.append({"input_ids": ids, "attention_mask": [1] * length, "labels": [-100] * prompt + ids[prompt:]})
    return rows


def translation_rows(n: int = 24, length: int = 8, seed: int = 1) -> list[dict[str, Any]]:
    """Source and target of fixed length; the targets end in -100 somewhere."""
    draw = random.Random(seed)
    rows = []
    for _ in range(n):
        end = draw.randrange(2, length + 1)
        target = [draw.randrange(2, VOCAB) for _ in range(end)] + [-100] * (length - end)
        source = [draw.randrange(2, VOCAB) for _ in range(length)]
        rows.append({"input_ids": source, "attention_mask": [1] * length, "labels": target})
    return rows


class MapDataset(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """A torch dataset over rows."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


class StreamDataset(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """A torch stream over rows; it has no length."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(self.rows)
