"""A small encoder with a tied head, and rows for it."""

from __future__ import annotations

import torch
from torch import nn


class Encoder(nn.Module):
    """Embeddings, layers and a tied head, as BERT has them."""

    position_ids: torch.Tensor

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, hidden), nn.Embedding(64, hidden)
        layer = nn.TransformerEncoderLayer(hidden, 2, 4 * hidden, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(hidden, 100)
        self.head.weight = self.words.weight
        self.register_buffer("position_ids", torch.arange(64))
        self.register_buffer("mask", torch.zeros(200, 200), persistent=False)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        places = self.places(self.position_ids[: input_ids.shape[1]])
        logits = self.head(self.layers(self.words(input_ids) + places))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


ROWS = [{"input_ids": torch.arange(8) + row, "labels": torch.arange(8)} for row in range(8)]
