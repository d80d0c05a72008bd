"""Noise on the embeddings."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ostinato.core.errors import ConfigError
from ostinato.loss.neftune import add_embedding_noise
from tests.support import tiny


class Model(tiny.TiedLanguageModel):
    def get_input_embeddings(self) -> nn.Module:
        return self.embedding


IDS = torch.arange(12).reshape(2, 6)


def test_noise_in_training_only() -> None:
    model = tiny.seeded(Model)
    clean = model.embedding(IDS).detach()
    with add_embedding_noise(model, 5.0):
        noisy = model.embedding(IDS).detach()
        assert not torch.equal(noisy, model.embedding(IDS))  # drawn anew each time
        model.eval()
        assert torch.equal(model.embedding(IDS), clean)
        model.train()
    limit = 5.0 / math.sqrt(6 * 16)
    assert 0 < float((noisy - clean).abs().max()) <= limit
    assert float((noisy - clean).abs().mean()) == pytest.approx(limit / 2, rel=0.2)


def test_hook_is_removed() -> None:
    model = tiny.seeded(Model)
    clean = model.embedding(IDS).detach()
    with add_embedding_noise(model, 5.0):
        pass
    assert torch.equal(model.embedding(IDS), clean)
    with pytest.raises(KeyError), add_embedding_noise(model, 5.0):
        raise KeyError
    assert torch.equal(model.embedding(IDS), clean)
    assert not model.embedding._forward_hooks


def test_off() -> None:
    model = tiny.regression()  # has no embeddings, and needs none
    with add_embedding_noise(model, None):
        model(torch.ones(1, 4))


def test_model_without_embeddings() -> None:
    with pytest.raises(ConfigError, match="get_input_embeddings"), add_embedding_noise(tiny.regression(), 5.0):
        pass


def test_embeddings_inside_an_adapter() -> None:
    class Adapter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = tiny.seeded(Model)

        def get_base_model(self):
            return self.base

    adapter = Adapter()
    clean = adapter.base.embedding(IDS)
    with add_embedding_noise(adapter, 5.0):
        assert not torch.equal(adapter.base.embedding(IDS), clean)
