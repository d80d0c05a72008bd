"""NEFTune: uniform noise on the input embeddings during training (Jain et al., 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import ConfigError


@contextmanager
def add_embedding_noise(model: nn.Module, alpha: float | None) -> Iterator[None]:
    """Add noise of size alpha / sqrt(length x width) to embeddings while entered, in training mode only."""
    if alpha is None:
        yield
        return
    embeddings = _find_input_embeddings(model)

    def disturb(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        if not module.training:
            return output
        size = alpha / torch.sqrt(torch.tensor(output.size(1) * output.size(2)))
        return output + torch.zeros_like(output).uniform_(-size, size)  # type: ignore[arg-type]

    hook = embeddings.register_forward_hook(disturb)
    try:
        yield
    finally:
        hook.remove()


def _find_input_embeddings(model: nn.Module) -> nn.Module:
    inner = model.get_base_model() if callable(getattr(model, "get_base_model", None)) else model  # type: ignore[operator]
    find = getattr(inner, "get_input_embeddings", None)
    embeddings = find() if callable(find) else None
    if not isinstance(embeddings, nn.Module):
        raise ConfigError(
            what=f"neftune_noise_alpha needs the input embeddings of {type(model).__name__}",
            why="the model has no get_input_embeddings() that returns a module",
            fix="give the model such a method, or unset neftune_noise_alpha",
        )
    return embeddings
