"""The source of the package, parsed once for all pages."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import ostinato

PACKAGE = Path(ostinato.__file__).parent


@cache
def parse_package() -> dict[str, ast.Module]:
    """Return the tree of every module, by its path in the package without the suffix (`engine/loop`)."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE).with_suffix("").as_posix(): ast.parse(path.read_text("utf-8")) for path in paths}
