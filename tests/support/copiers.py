"""Tiny models that have learned to copy a few rows: they write texts of different lengths, with an end."""

from __future__ import annotations

import copy
import random
from functools import cache
from typing import Any

import torch

from tests.support import tiny

PAD, END, START = 0, 1, 2


def rows(n: int = 10, longest: int = 6, seed: int = 1) -> list[dict[str, Any]]:
    """Sources of 1 to 6 tokens and an end, padded; the targets are the same, with -100 for padding."""
    draw, made = random.Random(seed), []
    for _ in range(n):
        ids = [*(draw.randrange(3, 12) for _ in range(draw.randrange(1, longest + 1))), END]
        rest = longest + 1 - len(ids)
        made.append(
            {
                "input_ids": ids + [PAD] * rest,
                "attention_mask": [1] * len(ids) + [0] * rest,
                "labels": ids + [-100] * rest,
            }
        )
    return made


def without_labels(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "labels"} for row in data]


def t5(dropout: float = 0.0) -> Any:
    return tiny.t5(dropout=dropout)


def bart() -> Any:
    return tiny._of_transformers(
        "BartForConditionalGeneration",
        "BartConfig",
        vocab_size=tiny.VOCAB,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=64,
        dropout=0.0,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        decoder_start_token_id=END,
    )


@cache
def _weights(kind: str) -> dict[str, Any]:
    model = {"t5": t5, "bart": bart}[kind]()
    batch = {name: torch.tensor([row[name] for row in rows()]) for name in rows()[0]}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
        for _ in range(60):
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return model.state_dict()


def taught(kind: str = "t5") -> Any:
    """A model that copies `rows()`, most of them right."""
    model = {"t5": t5, "bart": bart}[kind]()
    model.load_state_dict(copy.deepcopy(_weights(kind)))
    return model
