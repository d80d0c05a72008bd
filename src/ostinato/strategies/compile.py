"""`torch.compile`, and the errors for settings that it does not accept."""

from __future__ import annotations

import os
import shutil
import sys

import torch
from torch import nn

from ..arguments.name_suggestion import suggest_name
from ..arguments.settings import CompileSettings
from ..core.compiled_model import get_uncompiled
from ..core.errors import ConfigError


class CompileError(ConfigError, RuntimeError):
    """A compiler that cannot be used; torch raises a RuntimeError in most of these cases."""


def compile_model(model: nn.Module, settings: CompileSettings, device: torch.device) -> nn.Module:
    """Return the model, to be compiled when it is first called; a model that the user has compiled stays as it is."""
    if (
        get_uncompiled(model) is not model or model._compiled_call_impl is not None
    ):  # torch.compile(model), model.compile()
        return model
    _check_tools(settings, device)
    try:
        return torch.compile(model, backend=settings.backend, mode=settings.mode)  # type: ignore[return-value]
    except RuntimeError as error:
        raise _build_refusal(settings, error) from error


def _build_refusal(settings: CompileSettings, error: RuntimeError) -> CompileError:
    known = torch.compiler.list_backends(exclude_tags=())  # type: ignore[arg-type]
    if settings.backend not in known:
        usual = ["eager", "aot_eager", *torch.compiler.list_backends()]
        meant = suggest_name(str(settings.backend), usual)
        guess = f"did you mean {meant!r}? else " if meant else ""
        return CompileError(
            what=f"torch_compile_backend={settings.backend!r} is not known to torch",
            why=f"there are {', '.join(usual)}",
            fix=f"{guess}leave it out for inductor, or import the package that registers the backend first",
        )
    return CompileError(
        what=f"torch.compile refuses torch_compile_mode={settings.mode!r}", why=str(error), fix="name another, or none"
    )


def _check_tools(settings: CompileSettings, device: torch.device) -> None:
    """Raise if there is no C++ compiler: inductor writes C++ for a CPU, and the first step would fail."""
    if settings.backend != "inductor" or device.type != "cpu" or not sys.platform.startswith("linux"):
        return
    program = os.environ.get("CXX", "g++")
    if shutil.which(program) is None:
        raise CompileError(
            what="torch_compile=True needs a C++ compiler, and there is none",
            why=f"on a CPU, torch's inductor writes C++, and {program} is not found",
            fix='install g++ (or set CXX), or set torch_compile_backend="aot_eager", which needs none',
        )
