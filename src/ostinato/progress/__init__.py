"""Show progress: a live bar on a terminal, plain lines in a pipe, a table in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_package import load_on_use

if TYPE_CHECKING:
    from . import callback, notebook, plain
else:
    __getattr__ = load_on_use(__name__)
