"""bitsandbytes' optimizers with states of 8 bits: those of embeddings keep 32."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..core.notices import note_once
from ..core.package_import import import_from


def keep_embeddings_precise(optimizer: Any, model: nn.Module, options: dict[str, Any]) -> None:
    """Let the states of embeddings have 32 bits, as transformers does: 8 make training unstable there."""
    if options.get("optim_bits") != 8 or not type(optimizer).__module__.startswith("bitsandbytes."):
        return
    embeddings = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Embedding)]
    manager = import_from("bitsandbytes.optim.GlobalOptimManager", None, needed_by="").get_instance()
    for _, module in embeddings:
        manager.register_module_override(module, "weight", {"optim_bits": 32})
    if embeddings:
        names = ", ".join(name or type(module).__name__ for name, module in embeddings)
        note_once(f"the optimizer keeps states of 32 bits for embeddings ({names}), of 8 bits for the rest")
