"""The site is built without a warning, is complete, and loads nothing from the network."""

from __future__ import annotations

import html
import importlib.util
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

import ostinato
from tools.docs.reference import PACKAGES

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(https?:)?//|<link[^>]*\shref=["']?(https?:)?//"""
)
LINK = re.compile(r"""<(?:a|img|link|script|source)\b[^>]*?\s(?:href|src)=["']?([^"'\s>]+)""")
ANCHOR = re.compile(r"""\s(?:id|name)=["']?([^"'\s>]+)""")
CANONICAL = re.compile(r"<link[^>]*rel=[\"']?(canonical|prev|next)[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (pip install ostinato[docs])")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "WARNING" not in done.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    built |= {path.with_name("README.md") for path in built if path.stem == "index"}
    assert not pages - built


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = "".join(path.read_text("utf-8") for path in (site / "reference").glob("*.html"))
    identified = set(re.findall(r'id="?ostinato\.[\w.]*?(\w+)"?[ >]', pages))
    assert set(ostinato.__all__) - identified == {"DEFAULT_PROGRESS_CALLBACK"}  # made when it is read


def test_every_name_of_a_public_package_is_in_the_reference(site: Path) -> None:
    for page, (_, _, name) in PACKAGES.items():
        text = (site / "reference" / f"{page}.html").read_text("utf-8")
        identified = set(re.findall(r'id="?ostinato\.[\w.]*?(\w+)"?[ >]', text))
        assert {one for one in import_module(name).__all__ if not one.isupper()} <= identified, page


def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not LOADED.search(CANONICAL.sub("", page.read_text("utf-8"))), page.name
    for style in site.rglob("*.css"):
        assert "url(http" not in style.read_text("utf-8"), style.name


def find_broken_links(site: Path) -> list[str]:
    """Links of built pages that lead nowhere, also those of notebooks, pictures, navigation, sources, reference."""
    texts = {path: path.read_text("utf-8") for path in site.rglob("*.html")}
    places = {path: {html.unescape(one) for one in ANCHOR.findall(text)} for path, text in texts.items()}
    broken = []
    for page, text in texts.items():
        for link in {html.unescape(one) for one in LINK.findall(text)}:
            if re.match(r"[a-z]+:|//", link) or page.name == "404.html":
                continue
            name, _, anchor = unquote(link).partition("#")
            target = (page.parent / name.split("?")[0]).resolve() if name else page
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (anchor and target in places and anchor not in places[target]):
                broken.append(f"{page.relative_to(site)}: {link}")
    return sorted(broken)


def test_every_link_of_a_built_page_leads_somewhere(site: Path) -> None:
    assert find_broken_links(site.resolve()) == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    links = ["b.html#there", "b.html", "#here", "https://x.test/", "c.html", "b.html#not", "#nor"]
    (tmp_path / "a.html").write_text('<p id="here">' + "".join(f'<a href="{link}">x</a>' for link in links))
    (tmp_path / "b.html").write_text("<h2 id=there>x</h2>")
    assert find_broken_links(tmp_path.resolve()) == ["a.html: #nor", "a.html: b.html#not", "a.html: c.html"]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "examples/README.md"])
def test_the_links_of_a_page_outside_of_docs_lead_somewhere(name: str) -> None:
    page = ROOT / name
    links = re.findall(r"\]\(([^)\s#]+)", page.read_text("utf-8"))
    assert links
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_a_broken_link_is_a_failure(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[there](index.md#not-there)\n")
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    rules = settings[settings.index("validation:") : settings.index("# A pattern stands")]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: Test\nstrict: true\n{rules}")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "not-there" in done.stderr


def test_a_resource_of_the_network_would_be_found() -> None:
    assert LOADED.search('<script src="https://x.test/a.js">') and LOADED.search(
        "<link rel=stylesheet href=//x.test/a>"
    )
    assert not LOADED.search('<a href="https://x.test/">')
