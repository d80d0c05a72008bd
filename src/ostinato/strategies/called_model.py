"""The model that the loops call: the user's, or the result of `torch.compile`.

`trainer.model` is always the model itself, so that columns, labels, names of weights, saving and loading do not depend
on compiling. The compiled model shares its weights and is called in its place, in training and in evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

from ..arguments.settings import CompileSettings
from ..core.compiled_model import get_uncompiled
from ..core.protocols import Strategy
from . import compile


@dataclass(frozen=True)
class Compiled:
    """A compiled model, and the settings that it was compiled with."""

    module: nn.Module
    settings: CompileSettings | None  # None: the user compiled it


class CompileHost(Protocol):
    """A trainer whose model may be compiled."""

    args: Any
    model: nn.Module
    strategy: Strategy
    _compiled: Compiled | None


def unwrap_compiled(trainer: CompileHost) -> None:
    """Keep a model that was passed compiled for calls, and set `trainer.model` to the model inside it."""
    given = trainer.model
    if get_uncompiled(given) is not given:
        trainer._compiled = Compiled(given, settings=None)
        trainer.model = get_uncompiled(given)


def get_called_model(trainer: CompileHost, model: nn.Module) -> nn.Module:
    """Return the module to call for this model. It is created once: a compiler caches its results per module."""
    known, settings = trainer._compiled, CompileSettings.of(trainer.args)
    if known is not None and get_uncompiled(known.module) is model and known.settings in (None, settings):
        return known.module
    if settings is None:
        return model
    trainer._compiled = Compiled(compile.compile_model(model, settings, trainer.strategy.device), settings)
    return trainer._compiled.module
