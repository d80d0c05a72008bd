"""A hook of mkdocs: files outside `docs/` that pages link to become pages of the site, and the links lead there.

A link from `docs/data.md` to `../src/ostinato/data/loader.py` works in the repository. In the site, it leads to a page
that shows the file. Markdown files become pages as they are; a directory stands for its `README.md`, or
its first page.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\((?!\w+:|#|<)([^)\s#]+)(#[^)\s]*)?\)")
SHOWN = {".md", ".py", ".toml", ".txt"}
ALWAYS = ("examples/**/*.py", "examples/README.md", "CHANGELOG.md", "CONTRIBUTING.md")


def find_target(link: str, page: Path) -> Path | None:
    """Return the file outside `docs/` that a link of a page leads to; None for every other link."""
    target = Path(os.path.normpath(page.parent / link))
    if target.is_dir():
        target = next(
            (file for file in (target / "README.md", *sorted(target.glob("*.md"))) if file.is_file()), target
        )
    is_outside = target.is_relative_to(ROOT) and not target.is_relative_to(DOCS)
    return target if is_outside and target.suffix in SHOWN and target.is_file() else None


def name_page(path: Path) -> str:
    """Return the name of the page that shows a file of the repository.

    >>> name_page(ROOT / "examples" / "digits.py")
    'examples/digits.md'
    """
    return PurePosixPath(path.relative_to(ROOT)).with_suffix(".md").as_posix()


def rewrite_links(text: str, page: Path, name: str) -> str:
    """Let the links of a page lead to pages of the site.

    Args:
        text: The page.
        page: Where it is in the repository.
        name: Where it is in the site.

    Returns:
        The page with its links changed.
    """

    def rewrite(link: re.Match[str]) -> str:
        target = find_target(link[1], page)
        if target is not None:
            to = name_page(target)
        elif page.is_relative_to(DOCS) or not (page.parent / link[1]).exists():
            return link[0]
        else:  # a page outside docs/ links to one inside
            inside = Path(os.path.normpath(page.parent / link[1]))
            first = min(inside.glob("*.md"), default=inside)
            to = (inside / "README.md" if (inside / "README.md").is_file() else first).relative_to(DOCS).as_posix()
        return f"]({os.path.relpath(to, os.path.dirname(name) or '.')}{link[2] or ''})"

    return LINK.sub(rewrite, text)


def find_outside_files() -> dict[str, Path]:
    """Return the files outside `docs/` that are shown, by the name of their page."""
    found: dict[str, Path] = {}
    waiting = [*DOCS.rglob("*.md"), *(path for pattern in ALWAYS for path in sorted(ROOT.glob(pattern)))]
    while waiting:
        path = waiting.pop()
        if not path.is_relative_to(DOCS):
            if name_page(path) in found:
                continue
            found[name_page(path)] = path
        if path.suffix == ".md":
            links = LINK.finditer(path.read_text("utf-8"))
            waiting += [target for link in links if (target := find_target(link[1], path)) is not None]
    return found


def format_page(path: Path, name: str) -> str:
    """Return a file of the repository as Markdown."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return rewrite_links(text, path, name)
    place = path.relative_to(ROOT).as_posix()
    language = {".py": "python", ".toml": "toml"}.get(path.suffix, "text")
    return f"---\nsearch:\n  boost: 0.5\n---\n# {path.name}\n\n`{place}`\n\n````{language}\n{text.rstrip()}\n````\n"


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the pages (called by mkdocs)."""
    for name, path in find_outside_files().items():
        files.append(File.generated(config, name, content=format_page(path, name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change the links of the pages in `docs/` (called by mkdocs)."""
    source = DOCS / page.file.src_uri
    return rewrite_links(markdown, source, page.file.src_uri) if source.is_file() else markdown
