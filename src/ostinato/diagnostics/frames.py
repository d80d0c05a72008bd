"""What the frames of a traceback know: the tensors in which torch found a mistake."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ..core.tracebacks import frames_of
from .context import Scene


def _local(error: Exception, file: str, function: str) -> dict[str, Any]:
    """The variables of the innermost frame of a function; empty if it is not among the frames."""
    for entry in reversed(frames_of(error)):
        code = entry.tb_frame.f_code
        if code.co_name == function and code.co_filename.replace("\\", "/").endswith(file):
            return entry.tb_frame.f_locals
    return {}


def functional_variables(error: Exception, function: str) -> dict[str, Any]:
    return _local(error, "torch/nn/functional.py", function)


def failing_layer(error: Exception, scene: Scene) -> tuple[str, nn.Module, Any] | None:
    """The name of the torch layer that failed, the layer, and what it was given."""
    for entry in reversed(frames_of(error)):
        values = entry.tb_frame.f_locals
        owner, given = values.get("self"), values.get("input")
        if entry.tb_frame.f_code.co_name == "forward" and isinstance(owner, nn.Module) and isinstance(given, Tensor):
            name = next((name for name, module in scene.model.named_modules() if module is owner), None)
            return (name, owner, given) if name else None
    return None


def was_entered(error: BaseException, function: Callable[..., Any]) -> bool:
    """Whether a function was running when the error was raised, as opposed to not callable with what it was given."""
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__  # an object that can be called
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is None or any(entry.tb_frame.f_code is code for entry in frames_of(error))
