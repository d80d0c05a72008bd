"""The trainer as a search sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from ..core.protocols import EventHost, Strategy


class SearchHost(EventHost, Protocol):
    """A trainer, as its trials are trained one after another."""

    model: nn.Module
    model_wrapped: nn.Module
    model_init: Callable[..., nn.Module] | None
    optimizer: Any
    lr_scheduler: Any
    strategy: Strategy
    eval_dataset: Any
    compute_metrics: Any
    hp_search_backend: Any
    hp_space: Any
    hp_name: Callable[[Any], str] | None
    compute_objective: Any
    objective: Any  # of the current trial, as its last evaluation gave it
    _trial: Any
    _trial_directory: Path | None
    _search: Any  # the `SearchSession`, while there is one
    _searched: str | None  # the last study
    _run: Any
    _run_directory: Any

    @property
    def _output_path(self) -> Path: ...

    def train(self, resume_from_checkpoint: Any = None, trial: Any = None) -> Any: ...

    def evaluate(self) -> dict[str, float]: ...

    def call_model_init(self, trial: Any = None) -> nn.Module: ...

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None: ...

    def create_accelerator_and_postprocess(self) -> None: ...

    def _adopt_model(self) -> None: ...

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None: ...

    def _list_metric_names(self) -> list[str] | None: ...

    def _hp_search_setup(self, trial: Any) -> None: ...

    def _get_output_dir(self, trial: Any) -> str: ...

    def _tune_save_checkpoint(self, checkpoint_dir: str) -> None: ...

    def is_world_process_zero(self) -> bool: ...

    def _is_overridden(self, method: str) -> bool: ...

    def _makes_models(self) -> bool: ...
