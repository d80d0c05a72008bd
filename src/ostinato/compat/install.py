"""Installing Ostinato's names in a process, even after transformers was imported, and removing them again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from ..core.notices import warn
from .import_hook import Finder, PlaceholderModule, patch_lookup, replace_names, restore_lookup
from .name_map import MODULES, PACKAGE, get_module_name, load_own

_finder = Finder()
_replaced: list[tuple[ModuleType, str, Any]] = []  # references to transformers' objects that were found elsewhere


def are_names_installed() -> bool:
    return _finder in sys.meta_path


def install_names() -> None:
    """Make the mapped names resolve to Ostinato's from now on; a second call has no effect."""
    if are_names_installed():
        return
    sys.meta_path.insert(0, _finder)
    if PACKAGE in sys.modules:
        _replace_loaded_names(sys.modules[PACKAGE])


def _replace_loaded_names(package: ModuleType) -> None:
    """Replace names in modules of transformers that were imported before, and in the modules that imported them."""
    theirs: dict[int, tuple[Any, str]] = {}
    for path in MODULES:
        module = sys.modules.get(path)
        if module is None or isinstance(module, PlaceholderModule):
            continue
        for name in MODULES[path]:
            if name in vars(module):
                theirs[id(vars(module)[name])] = (vars(module)[name], name)
    theirs = {key: (value, name) for key, (value, name) in theirs.items() if callable(value)}
    _warn_about_subclasses([value for value, _ in theirs.values() if isinstance(value, type)])
    for path in MODULES:
        if path != PACKAGE and path in sys.modules:
            replace_names(sys.modules[path])
    for module, name, value in list(_find_references(set(theirs))):
        _replaced.append((module, name, value))
        setattr(module, name, load_own(theirs[id(value)][1]))
    patch_lookup(package)


def _find_references(wanted: set[int]) -> Iterator[tuple[ModuleType, str, Any]]:
    """Yield every global name, in any module but Ostinato's, that refers to one of these objects."""
    loaded = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    # The package may exist twice, and only one of them is in `sys.modules`.
    others = {id(one): one for module in loaded for one in list(vars(module).values()) if _is_transformers(one)}
    for module in {**others, **{id(one): one for one in loaded}}.values():
        if isinstance(module, PlaceholderModule) or str(module.__name__).split(".")[0] == __name__.split(".")[0]:
            continue
        for name, value in list(vars(module).items()):
            if id(value) in wanted:
                yield module, name, value


def _is_transformers(value: Any) -> bool:
    # Not isinstance, which reads __class__: some objects then emit a warning.
    return issubclass(type(value), ModuleType) and vars(value).get("__name__") == PACKAGE


def _warn_about_subclasses(classes: list[type]) -> None:
    made = {
        f"{one.__module__}.{one.__qualname__}"
        for cls in classes
        for one in _iterate_subclasses(cls)
        if one.__module__.split(".")[0] != PACKAGE
    }
    if made:
        shown = ", ".join(sorted(made)[:4]) + (f" and {len(made) - 4} more" if len(made) > 4 else "")
        warn(
            f"{shown}: defined before ostinato.dropin was imported, so still based on transformers' classes; "
            "make `import ostinato.dropin` the first line"
        )


def _iterate_subclasses(cls: type) -> Iterator[type]:
    for child in type.__subclasses__(cls):
        yield child
        yield from _iterate_subclasses(child)


def find_changed(path: str, name: str) -> Any:
    """Return what a module of transformers has under a replaced name: a script may have set it there; else None."""
    module = sys.modules.get(path) if are_names_installed() else None
    return None if module is None else vars(module).get(name)


def remove_names() -> None:
    """Make the names resolve to transformers' own again, for imports from now on."""
    if not are_names_installed():
        return
    sys.meta_path.remove(_finder)
    package = sys.modules.get(PACKAGE)
    if package is None:
        return
    own = {
        id(value): name for name in _list_names() if (value := _get_if_loaded(name)) is not None and callable(value)
    }
    restore_lookup(package)
    for path in MODULES:
        _restore_module(path)
    for module, name, value in _replaced:
        setattr(module, name, value)
    _replaced.clear()
    for module, name, value in list(_find_references(set(own))):
        if module.__name__ == PACKAGE:
            delattr(module, name)  # the package looks it up on access
        elif module.__name__.startswith(f"{PACKAGE}."):
            setattr(module, name, _get_original(own[id(value)]))


def _restore_module(path: str) -> None:
    module = sys.modules.get(path)
    if module is None or path == PACKAGE:
        return
    if isinstance(module, PlaceholderModule):  # the next import loads the original module
        del sys.modules[path]
        parent, _, child = path.rpartition(".")
        vars(sys.modules[parent]).pop(child, None)
    else:
        vars(module).update(vars(module).pop("_original_values", {}))


def _list_names() -> set[str]:
    return {name for names in MODULES.values() for name in names}


def _get_if_loaded(name: str) -> Any:
    """Return Ostinato's object, or None if its module is not loaded yet."""
    module = sys.modules.get(get_module_name(name))
    return vars(module).get(name) if module is not None else None


def _get_original(name: str) -> Any:
    """Return what transformers itself has under a name."""
    for path, names in MODULES.items():
        if name in names and path != PACKAGE and find_spec(path) is not None:
            value = getattr(import_module(path), name, None)
            if value is not None:
                return value
    return getattr(import_module(PACKAGE), name)
