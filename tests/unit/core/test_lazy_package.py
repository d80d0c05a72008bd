"""A package that loads its modules on use: which names it has, and what it loads for them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

INIT = """
from ostinato.core.lazy_package import load_on_use

__getattr__ = load_on_use(__name__, {"tools": ["Hammer"]})
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    folder = tmp_path / "shed"
    folder.mkdir()
    (folder / "__init__.py").write_text(INIT)
    (folder / "tools.py").write_text("class Hammer: ...")
    (folder / "broken.py").write_text("import a_library_that_is_not_installed")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("shed")
    for name in [name for name in sys.modules if name.split(".")[0] == "shed"]:
        del sys.modules[name]


def test_a_module_loads_when_it_is_first_used(package: ModuleType) -> None:
    assert "shed.tools" not in sys.modules
    assert package.tools is sys.modules["shed.tools"]
    assert vars(package)["tools"] is package.tools, "the second use does not ask again"


def test_a_name_loads_its_module_and_is_kept(package: ModuleType) -> None:
    hammer = package.Hammer
    assert hammer is package.tools.Hammer
    assert vars(package)["Hammer"] is hammer


def test_import_statements_find_modules_and_names(package: ModuleType) -> None:
    from shed import Hammer, tools  # pyright: ignore[reportMissingImports]

    assert tools.Hammer is Hammer
    with pytest.raises(ImportError, match="saw"):
        from shed import saw  # noqa: F401  # pyright: ignore[reportMissingImports]


def test_a_name_that_is_not_there_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'shed' has no attribute 'saw'"):
        package.saw  # noqa: B018


def test_a_library_that_a_module_lacks_is_reported_as_such(package: ModuleType) -> None:
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_not_installed"):
        package.broken  # noqa: B018
