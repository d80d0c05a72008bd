"""Every block of Python in the documentation runs as it stands, one page after the other.

A block that cannot run here says so in its title, which readers see:
```` ```python title="Not run: needs two GPUs" ````.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ ]*(?:\{[ ]*\.)?(?:python|py|python3)\b(?P<options>[^\n]*)\n"
    r"(?P<code>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = re.compile(r'title="Not run: (?P<why>[^"]+)"')
MOST_NOT_RUN = 6


def find_blocks(page: Path) -> list[tuple[int, str, str]]:
    """Return the line, the reason not to run it (or nothing) and the code of every block of a page."""
    text, found = page.read_text("utf-8"), []
    for block in FENCE.finditer(text):
        why = NOT_RUN.search(block["options"])
        line = text.count("\n", 0, block.start("code"))
        found.append((line, why["why"] if why else "", textwrap.dedent(block["code"])))
    return found


OUTSIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")]
PAGES = [page for page in [*sorted((ROOT / "docs").rglob("*.md")), *OUTSIDE] if find_blocks(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")  # its threads would outlive the test
    names: dict[str, object] = {"__name__": "__main__"}
    for line, why, code in find_blocks(page):
        if not why:
            exec(compile("\n" * line + code, str(page), "exec"), names)


def test_hardly_any_block_is_not_run() -> None:
    reasons = [why for page in PAGES for _, why, _ in find_blocks(page) if why]
    assert len(reasons) <= MOST_NOT_RUN, reasons


def test_blocks_of_every_form_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\na = 1\n```\n\n- In a list:\n\n    ```py\n    b = 2\n    ```\n\n"
        '````python title="x.py"\nc = "```"\n````\n\n'
        '```python title="Not run: needs two GPUs"\nd = 4\n```\n\n```text\ne = 5\n```\n'
    )
    assert [(why, code) for _, why, code in find_blocks(page)] == [
        ("", "a = 1\n"),
        ("", "b = 2\n"),
        ("", 'c = "```"\n'),
        ("needs two GPUs", "d = 4\n"),
    ]
