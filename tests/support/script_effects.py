"""What a script does beside returning something: what it changes outside itself, and whose code it calls."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch

from tests.support.digests import Digest


def describe_outside(function: Callable[..., Any] | None) -> dict[str, Any]:
    """Return a description of every variable that a function of a test can reach, to be compared within the process.

    Values from elsewhere are only told apart, not looked into: tests change what tests have made.
    """
    if not isinstance(function, FunctionType):
        return {"the script": _describe(function, {})}
    seen: dict[int, Any] = {}
    return {name: _describe(value, seen) for name, value in _variables(function).items()}


def _variables(function: FunctionType) -> dict[str, Any]:
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    found = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found


def _describe(value: Any, seen: dict[int, Any]) -> Any:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if id(value) in seen:
        return "seen"
    seen[id(value)] = value  # kept alive, so that its id is not given away
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return _describe_array(value)
    if isinstance(value, Mapping):
        return [(_describe(key, seen), _describe(one, seen)) for key, one in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = [_describe(one, seen) for one in value]
        return sorted(parts, key=repr) if isinstance(value, (set, frozenset)) else parts
    if isinstance(value, Path):
        return _describe_path(value)
    if isinstance(value, functools.partial):
        return [_describe(one, seen) for one in (value.func, value.args, value.keywords)]
    if isinstance(value, MethodType):
        return [_describe(one, seen) for one in (value.__func__, value.__self__)]
    if isinstance(value, FunctionType):
        return id(value), _describe(_variables(value), seen) if _is_of_tests(value) else None
    if isinstance(value, type):
        inside = {name: one for name, one in vars(value).items() if not name.startswith("__")}
        return id(value), _describe(inside, seen) if _is_of_tests(value) else None
    if isinstance(value, torch.nn.Module) or _is_of_tests(type(value)):
        return id(value), _describe(dict(getattr(value, "__dict__", {})), seen)
    return id(value)


def _is_of_tests(value: Any) -> bool:
    return (value.__module__ or "").split(".")[0] == "tests"


def _describe_array(value: Any) -> Any:
    try:
        return repr(Digest.of(value))
    except (RuntimeError, TypeError, NotImplementedError):  # sparse, quantized, of objects
        return id(value)


def _describe_path(path: Path) -> Any:
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return str(path), sorted((str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in files if one.is_file())


@contextlib.contextmanager
def watch_calls(folder: Path) -> Iterator[set[str]]:
    """Yield a set to which the functions are added that are called meanwhile and whose code is in a folder."""
    called: set[str] = set()
    start = f"{folder}/"

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(start):
            called.add(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}")

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]
