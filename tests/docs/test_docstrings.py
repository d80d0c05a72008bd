"""Every public name says what it takes, what it returns, what it raises, and shows how it is used.

The rule, for the names in `__all__` of the package and of the packages in `PUBLIC`, and the public methods of their
classes (those of the package itself):

* a function or method has a docstring of its own; with `Args:` that name every parameter, `Returns:` (or `Yields:`) if
  its annotation names something else than None, and `Raises:` if its own body raises something. One that takes
  nothing may say what it returns in its first sentence, "Return ...";
* a class says under `Args:`, in its docstring or that of `__init__`, what its own `__init__` takes; its base classes
  may name the parameters that they take as well;
* a function or class has an example: a `>>>` line or a block of code; or it says that the trainer adds it;
* events (`on_...`) take and return the same, which the docstring of `TrainerCallback` says once;
* a method that overrides one of the package may leave its docstring to that one; a property needs a sentence only,
  and so does a method without parameters that returns nothing;
* exceptions, enumerations and dataclasses (also named tuples) are containers: they and their properties need a
  sentence only; constants are described in the reference pages.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import ostinato

# What users import beside the package itself.
PUBLIC = (
    "ostinato",
    "ostinato.integrations.ray",
    "ostinato.logging",
    "ostinato.metrics",
    "ostinato.report",
    "ostinato.tasks",
)
RETURN_NOTHING = {"None", "NoReturn", "Never", inspect.Signature.empty}


def is_of_package(found: Any) -> bool:
    return str(getattr(found, "__module__", "")).split(".")[0] == "ostinato"


def is_container(cls: type) -> bool:
    return issubclass(cls, (BaseException, enum.Enum, tuple)) or dataclasses.is_dataclass(cls)


def list_parameters(function: Callable[..., Any], bound: bool) -> list[str]:
    return list(inspect.signature(function).parameters)[1 if bound else 0 :]


def list_unnamed(text: str, names: list[str]) -> list[str]:
    """The parameters that no line of a docstring begins with, alone or in a row: `first, second: ...`."""
    return [name for name in names if not re.search(rf"^\s*([\w*]+, )*\**{name}(, [\w*]+)*( \(.*\))?:", text, re.M)]


def returns_something(function: Callable[..., Any]) -> bool:
    return inspect.signature(function).return_annotation not in RETURN_NOTHING | {None}


def raises_something(function: Callable[..., Any]) -> bool:
    """Whether the body of a function raises, apart from functions inside it; passing an error on does not count."""
    pending: list[ast.AST] = list(ast.parse(textwrap.dedent(inspect.getsource(function))).body[0].body)  # type: ignore[attr-defined]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            pending.extend(ast.iter_child_nodes(node))
    return False


def find_gaps(text: str, function: Callable[..., Any], bound: bool) -> list[str]:
    """The sections a function needs and its docstring lacks."""
    if not text.strip():
        return ["docstring"]
    parameters = list_parameters(function, bound)
    needed = {
        "Args:": bool(parameters),
        "Returns:": returns_something(function),
        "Raises:": raises_something(function),
    }
    if text.startswith("Return ") and not needed["Args:"]:
        needed["Returns:"] = False
    lines = {line.strip().replace("Yields:", "Returns:") for line in text.splitlines()}
    gaps = [section for section, is_needed in needed.items() if is_needed and section not in lines]
    return gaps + (list_unnamed(text, parameters) if "Args:" not in gaps else [])


def shows_use(text: str) -> bool:
    return any(sign in text for sign in (">>>", "```python", "The trainer adds"))


def find_methods(cls: type) -> Iterator[tuple[str, type, Any]]:
    """The public methods of a class that the package defines: name, where it is defined, what is there."""
    seen: set[str] = set()
    for owner in cls.__mro__:
        if not is_of_package(owner):
            continue
        for name, value in vars(owner).items():
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, owner, value


def is_override(name: str, owner: type) -> bool:
    return any(name in vars(base) for base in owner.__mro__[1:] if is_of_package(base))


def check_method(name: str, owner: type, value: Any) -> list[str]:
    if isinstance(value, property):
        return [] if value.__doc__ or is_override(name, owner) else ["docstring"]
    is_static = isinstance(value, staticmethod)
    if owner is ostinato.TrainerCallback and name.startswith("on_") and value.__doc__:
        return []
    function = inspect.unwrap(value.__func__ if isinstance(value, (classmethod, staticmethod)) else value)
    if not inspect.isfunction(function) or not is_of_package(function):
        return []
    text = inspect.getdoc(value) if not is_override(name, owner) else ""
    if not text and is_override(name, owner):
        return []
    return find_gaps(text or "", function, bound=not is_static)


def check_class(cls: type) -> list[str]:
    text = vars(cls).get("__doc__") or ""
    if not text.strip():
        return ["docstring"]
    if is_container(cls):
        return []
    gaps = [] if shows_use(text) else ["example"]
    start = vars(cls).get("__init__")
    if is_of_package(start) and (parameters := list_parameters(start, bound=True)):
        text += start.__doc__ or ""
        gaps += [] if "Args:" in text else ["Args:"]
        inherited = "\n".join(base.__doc__ or "" for base in cls.__mro__[1:] if is_of_package(base))
        gaps += list_unnamed(f"{text}\n{inherited}", parameters)
    return gaps


def collect_gaps(module: ModuleType) -> dict[str, list[str]]:
    """What each public name and method of a package lacks; nothing for those that are whole."""
    found: dict[str, list[str]] = {}
    for public in module.__all__:
        value = getattr(module, public)
        if inspect.isclass(value) and is_of_package(value):
            found[public] = check_class(value)
            for name, owner, method in find_methods(value):
                found[f"{owner.__module__}.{owner.__qualname__}.{name}"] = check_method(name, owner, method)
        elif inspect.isfunction(value):
            function = inspect.unwrap(value)
            text = inspect.getdoc(value) or ""
            found[public] = find_gaps(text, function, bound=False) + ([] if shows_use(text) else ["example"])
    return {name: gaps for name, gaps in found.items() if gaps}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name: str) -> None:
    gaps = collect_gaps(import_module(name))
    assert not gaps, "\n".join(f"{name} lacks {', '.join(lacking)}" for name, lacking in sorted(gaps.items()))


class _Sample:
    def whole(self, rows: int) -> int:
        """Count.

        Args:
            rows: How many.

        Returns:
            The count.

        Raises:
            ValueError: None.
        """
        if rows < 0:
            raise ValueError(rows)
        return rows


def test_a_parameter_without_a_line_is_found() -> None:
    text = (inspect.getdoc(_Sample.whole) or "").replace("rows:", "row:")
    assert find_gaps(text, _Sample.whole, bound=True) == ["rows"]


@pytest.mark.parametrize("section", ["Args:", "Returns:", "Raises:"])
def test_a_missing_section_is_found(section: str) -> None:
    text = inspect.getdoc(_Sample.whole) or ""
    assert find_gaps(text, _Sample.whole, bound=True) == []
    assert find_gaps(text.replace(section, ""), _Sample.whole, bound=True) == [section]
