"""A hook of mkdocs: a pattern in the navigation stands for the pages that match it and are listed nowhere else."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

HIDDEN = ("src/*", "examples/*", "CONTRIBUTING.md")  # pages that others link to


def list_pages(entry: Any) -> list[str]:
    """Return the pages of a part of the navigation."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in list_pages(part)]


def expand(entry: Any, rest: list[str]) -> Any:
    """Replace the patterns of a part of the navigation.

    Args:
        entry: A page, a pattern, a section or a list of them.
        rest: The pages that are not listed by name. Those that a pattern takes are removed.

    Returns:
        The part without patterns. A section whose patterns match nothing is left out.

    >>> expand([{"Tasks": ["tasks/README.md", "tasks/*.md"]}, {"More": ["*.md"]}], ["tasks/clm.md"])
    [{'Tasks': ['tasks/README.md', 'tasks/clm.md']}]
    """
    if isinstance(entry, dict):
        return {name: expand(part, rest) for name, part in entry.items()}
    if not isinstance(entry, list):
        return entry
    expanded: list[Any] = []
    for part in entry:
        if isinstance(part, str) and "*" in part:
            # A pattern matches within one directory.
            taken = [page for page in rest if fnmatchcase(page, part) and page.count("/") == part.count("/")]
            rest[:] = [page for page in rest if page not in taken]
            expanded += taken
        else:
            replaced = expand(part, rest)
            if replaced and not (isinstance(replaced, dict) and list(replaced.values()) == [[]]):
                expanded.append(replaced)
    return expanded


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Expand the navigation, once all pages are known (called by mkdocs)."""
    listed = set(list_pages(config.nav))
    pages = sorted((file.src_uri for file in files.documentation_pages()), key=PurePosixPath)
    rest = [page for page in pages if page not in listed]
    for page in list(rest):
        if any(fnmatchcase(page, pattern) for pattern in HIDDEN):
            rest.remove(page)
            files.get_file_from_path(page).inclusion = files.get_file_from_path(page).inclusion.NOT_IN_NAV
    config.nav = expand(config.nav, rest)
    return files
