"""`ostinato report`: a page, a comparison, and clear words for what is no journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ostinato.cli import main
from tests.support.journals import Journal, whole_run


def test_a_page_beside_the_journal_or_elsewhere(tmp_path: Path, capsys: Any) -> None:
    whole_run(tmp_path / "out")
    assert main(["report", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"written: {tmp_path / 'out' / 'report.html'}\n"
    assert main(["report", str(tmp_path / "out" / "events.jsonl"), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "out" / "report.html").read_bytes()


def test_two_runs_are_compared(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole_run(tmp_path / "a", name="one")
    Journal(tmp_path / "b").start(name="two", arguments={"learning_rate": 0.5}).log(1, loss=9.0)
    assert main(["report", "a", "b"]) == 0
    said = capsys.readouterr().out
    assert "one and two differ at step 1" in said and "learning_rate: 0.001 | 0.5" in said
    assert "runs compared" in (tmp_path / "comparison.html").read_text(encoding="utf-8")


def test_one_of_several_runs(tmp_path: Path) -> None:
    whole_run(tmp_path, until=20, run="a", name="first")
    whole_run(tmp_path, until=20, run="b", name="second")
    assert main(["report", str(tmp_path), "--run", "a"]) == 0
    assert "<title>first" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("content", [None, b"", b"hello\n", b"\xff\xfe\x00" * 100, b"{}\n[]\n"])
def test_a_missing_journal(tmp_path: Path, capsys: Any, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "events.jsonl").write_bytes(content)
    assert main(["report", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "journal" in said.err and "fix:" in said.err and "Traceback" not in said.err


def test_a_page_that_cannot_be_written(tmp_path: Path, capsys: Any) -> None:
    whole_run(tmp_path, until=20)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "no" / "page.html")]) == 1
    assert "could not be written" in capsys.readouterr().err


def test_too_many_runs(tmp_path: Path, capsys: Any) -> None:
    assert main(["report", *[str(tmp_path)] * 9]) == 2
    assert "at most 8" in capsys.readouterr().err


def test_a_journal_cannot_send_codes_to_the_terminal(tmp_path: Path, capsys: Any) -> None:
    whole_run(tmp_path / "a", until=20, name="one", arguments={"note": "x"})
    whole_run(tmp_path / "b", until=20, name="\x1b[2Jtwo", arguments={"note": "\x1b]0;title\x07"})
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "page.html")]) == 0
    assert "\x1b" not in capsys.readouterr().out
