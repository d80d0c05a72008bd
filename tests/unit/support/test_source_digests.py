"""Whether the code of a test changed: what it can reach counts, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import source_digests

TEST = '''"""About."""
import math
from ostinato.core import old_place
from tests.support import first
from tests.support.references import recall

SIZE = 3

def helper():
    return SIZE  # rows

def test_one():
    assert helper() == 3

def test_two():
    assert first.value
'''
FILES = {
    "tests/contract/test_a.py": TEST,
    "tests/contract/conftest.py": "A = 1\n",
    "tests/conftest.py": "B = 1\n",
    "tests/support/first.py": "from tests.support.second import other\nvalue = other\n",
    "tests/support/second.py": '"""About."""\nother = 1\n',
    "tests/support/third.py": "unused = 1\n",
    "tests/support/references.py": "def recall(): ...\n",
}


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return the digest of `test_one` after a replacement in one of the files."""
    made = 0

    def digest(file: str = "", old: str = "", new: str = "", name: str | None = "test_one") -> str:
        nonlocal made
        made += 1
        root = tmp_path / str(made)
        for path, text in FILES.items():
            assert path != file or old in text
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text.replace(old, new) if path == file else text)
        monkeypatch.setattr(source_digests, "ROOT", root)
        return source_digests.digest_test(root / "tests/contract/test_a.py", name)

    return digest


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("tests/contract/test_a.py", "# rows", "# lines"),
        ("tests/contract/test_a.py", "About.", "About something else."),
        ("tests/contract/test_a.py", "import math\n", "import math\n\n\n"),
        ("tests/contract/test_a.py", "ostinato.core import old_place", "ostinato.engine import new_place"),
        ("tests/contract/test_a.py", "assert first.value", "assert not first.value"),
        ("tests/support/second.py", "About.", "About something else."),
        ("tests/support/third.py", "1", "2"),
        ("tests/support/references.py", "...", "return 1"),
        ("tests/conftest.py", "1", "2"),
    ],
)
def test_harmless(digest, file: str, old: str, new: str) -> None:
    assert digest(file, old, new) == digest()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("tests/contract/test_a.py", "helper() == 3", "helper() == 4"),
        ("tests/contract/test_a.py", "return SIZE", "return SIZE + 1"),
        ("tests/contract/test_a.py", "SIZE = 3", "SIZE = 4"),
        ("tests/contract/conftest.py", "1", "2"),
        ("tests/support/first.py", "value = other", "value = other + 1"),
        ("tests/support/second.py", "1", "2"),
    ],
)
def test_stale(digest, file: str, old: str, new: str) -> None:
    assert digest(file, old, new) != digest()


def test_what_tests_share(digest) -> None:
    assert digest("tests/contract/test_a.py", "== 3", "== 4", name=None) == digest(name=None) != digest()
    assert digest("tests/contract/test_a.py", "SIZE = 3", "SIZE = 4", name=None) != digest(name=None)
