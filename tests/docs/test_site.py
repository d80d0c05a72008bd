"""The site is built without a warning, is complete, and loads nothing from the network."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ostinato

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(https?:)?//|<link[^>]*\shref=["']?(https?:)?//"""
)
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


def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not LOADED.search(CANONICAL.sub("", page.read_text("utf-8"))), page.name
    for style in site.rglob("*.css"):
        assert "url(http" not in style.read_text("utf-8"), style.name


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
