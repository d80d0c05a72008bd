"""Collect what a trainer knows of its model, for the model card."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from ..arguments.hyperparameters import collect_hyperparameters
from ..arguments.settings import ReportSettings
from ..core.state import TrainerState
from ..data.columns import unwrap_model
from .model_card import CardFacts, CardRequest, write_card

_LIBRARIES = {"PEFT": "peft", "Transformers": "transformers", "Pytorch": "torch", "Datasets": "datasets",
              "Tokenizers": "tokenizers"}  # fmt: skip
_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILE_FORMATS = {"arrow", "audiofolder", "csv", "generator", "imagefolder", "json", "pandas", "parquet", "sql", "text"}


class CardHost(Protocol):
    """A trainer as the card of its model describes it."""

    args: Any
    model: nn.Module
    state: TrainerState
    train_dataset: Any
    _train_batch_size: int

    @property
    def _output_path(self) -> Path: ...

    def is_world_process_zero(self) -> bool: ...


def create_model_card(trainer: CardHost, asked: CardRequest, name: str | None) -> None:
    """Write README.md into the output directory, in the first process."""
    if trainer.is_world_process_zero():
        write_card(trainer._output_path, asked, collect_facts(trainer, name))


def collect_facts(trainer: CardHost, name: str | None) -> CardFacts:
    """Return the facts of a card that the caller does not have to give."""
    state = trainer.state
    adapters = getattr(trainer.model, "peft_config", None) or {}
    inner = unwrap_model(trainer.model)
    base = next((config.base_model_name_or_path for config in adapters.values()), None)
    base = _find_hub_name(base or getattr(getattr(inner, "config", None), "_name_or_path", None))
    is_transformers = any(kind.__module__.partition(".")[0] == "transformers" for kind in type(inner).__mro__)
    tags = []
    if adapters:
        kinds = [str(getattr(config.peft_type, "value", config.peft_type)).lower() for config in adapters.values()]
        tags = [*([f"base_model:adapter:{base}"] if base else []), *kinds]
        tags += ["transformers"] if is_transformers else []
    return CardFacts(
        name=name or trainer._output_path.absolute().name,
        model_class=type(inner).__name__,
        library_name="peft" if adapters else "transformers" if is_transformers else None,
        base_model=base,
        tags=tuple(tags),
        dataset=_find_dataset(trainer.train_dataset),
        hyperparameters=collect_hyperparameters(trainer.args, trainer._train_batch_size),
        log_history=state.log_history,
        best_step=state.best_global_step if ReportSettings.of(trainer.args).load_best_at_end else None,
        versions=_collect_versions(is_adapter=bool(adapters)),
    )


def _find_hub_name(name: Any) -> str | None:
    """Return a name if it is one of the hub and not a local directory."""
    is_one = isinstance(name, str) and _REPOSITORY.fullmatch(name) and not Path(name).exists()
    return name if is_one else None


def _find_dataset(dataset: Any) -> tuple[str, str | None] | None:
    """Return the origin that `datasets` gives, if that is more than a file format."""
    name, config = getattr(dataset, "builder_name", None), getattr(dataset, "config_name", None)
    if not isinstance(name, str) or name in _FILE_FORMATS:
        return None
    return name, config if isinstance(config, str) and config != "default" else None


def _collect_versions(*, is_adapter: bool) -> dict[str, str]:
    """Return the versions of the libraries in use."""
    ours = __name__.partition(".")[0]
    used = {"Ostinato": ours, **{name: one for name, one in _LIBRARIES.items() if name != "PEFT" or is_adapter}}
    return {name: sys.modules[module].__version__ for name, module in used.items() if module in sys.modules}
