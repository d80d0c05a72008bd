"""Import hook that puts Ostinato's names into transformers' modules, on import or at once if already imported.

The modules of transformers' trainer are not loaded for Ostinato's names: a placeholder module is put in their place
and resolves these names. For any other name it runs the module's own code, and then puts Ostinato's names back. So all
code sees one `Trainer` and one `TrainingArguments`, and so do the functions of these modules that stay transformers'
own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from ..core.notices import note_once
from .name_map import MODULES, PACKAGE, REMOVED, VALUES, load_own

_lock = threading.RLock()


def get_replacement(module: str, name: str) -> Any:
    """Return Ostinato's object for a name of a transformers module; KeyError if it stays transformers' own."""
    if name in MODULES[module]:
        return load_own(name)
    return VALUES.get(module, {})[name]


def _list_replaced(module: str) -> list[str]:
    return [*MODULES[module], *VALUES.get(module, {})]


def note_if_removed(module: str, name: str) -> None:
    """Note that a name was removed: `from … import NAME` discards the text of an AttributeError."""
    instead = REMOVED.get(module, {}).get(name)
    if instead is not None:
        note_once(f"{module}.{name} no longer exists: {instead}")


class PlaceholderModule(ModuleType):
    """A module of transformers that resolves Ostinato's names, and runs its own code only for other names."""

    _original_spec: ModuleSpec | None = None
    _original_values: dict[str, Any] | None = None  # the original values, once the module's own code has run

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        try:
            value = get_replacement(self.__name__, name)
        except KeyError:
            pass
        else:
            vars(self)[name] = value
            return value
        if self._original_values is None and self._original_spec is not None:
            self._run_own_code()
            if name in vars(self):
                return vars(self)[name]
        note_if_removed(self.__name__, name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *_list_replaced(self.__name__)})

    def _run_own_code(self) -> None:
        with _lock:
            if self._original_values is not None:  # another thread has run the code, or this one is running it
                return
            assert self._original_spec is not None and self._original_spec.loader is not None
            vars(self)["_original_values"] = {}
            try:
                self._original_spec.loader.exec_module(self)
            except BaseException:
                vars(self)["_original_values"] = None  # the next access raises the same error
                raise
            replace_names(self)


def replace_names(module: ModuleType) -> None:
    """Replace names in a module whose own code has run, and keep the original values."""
    space = vars(module)
    names = [name for name in _list_replaced(module.__name__) if name in space]
    before = {name: space[name] for name in names}
    space.update({name: get_replacement(module.__name__, name) for name in names})
    space["_original_values"] = before


class _PlaceholderLoader(Loader):
    """A loader that makes a placeholder module and runs no code."""

    def __init__(self, theirs: ModuleSpec) -> None:
        self.theirs = theirs

    def create_module(self, spec: ModuleSpec) -> PlaceholderModule:
        module = PlaceholderModule(spec.name)
        vars(module)["_original_spec"] = self.theirs
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


class _PackageLoader(Loader):
    """A loader that loads the package itself as usual, and makes it find Ostinato's names first."""

    def __init__(self, theirs: ModuleSpec) -> None:
        self.theirs = theirs

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        assert self.theirs.loader is not None
        return self.theirs.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert self.theirs.loader is not None
        self.theirs.loader.exec_module(module)
        patch_lookup(sys.modules.get(module.__name__, module))  # a lazy package replaces its own module object


def patch_lookup(package: ModuleType) -> None:
    """Make the package find Ostinato's names before its own, which it looks up on access.

    Its type is changed, not the package: transformers makes a second object of itself while models are imported.
    """
    kind: Any = type(package)
    if kind is ModuleType or "_original_getattr" in vars(kind):
        return  # a package without lazy lookup imports the names from its modules
    look = kind.__getattr__

    def find_own_first(self: ModuleType, name: str) -> Any:
        if self.__name__ != PACKAGE:
            return look(self, name)
        if name in MODULES[PACKAGE]:
            value = load_own(name)
            setattr(self, name, value)
            return value
        note_if_removed(PACKAGE, name)
        return look(self, name)

    kind._original_getattr, kind.__getattr__ = look, find_own_first


def restore_lookup(package: ModuleType) -> None:
    """Undo `patch_lookup`."""
    kind: Any = type(package)
    if "_original_getattr" in vars(kind):
        kind.__getattr__ = kind._original_getattr
        del kind._original_getattr


class Finder(MetaPathFinder):
    """A finder that finds the modules of the table before all other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in MODULES:
            return None
        theirs = PathFinder.find_spec(fullname, path)
        if theirs is None or theirs.loader is None:
            return None  # another version, without this module
        loader = _PackageLoader(theirs) if fullname == PACKAGE else _PlaceholderLoader(theirs)
        spec = ModuleSpec(fullname, loader, origin=theirs.origin)
        spec.submodule_search_locations = theirs.submodule_search_locations
        spec.has_location = theirs.has_location
        return spec
