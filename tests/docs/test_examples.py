"""The examples run, in a shortened form."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_numbers_are_written_backwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tokenizers")
    from apis import load_library

    load_library("transformers")
    monkeypatch.chdir(tmp_path)
    right = loaded("seq2seq_reverse").main(rows=640, epochs=3)
    printed = capsys.readouterr().out
    losses = [float(loss) for loss in re.findall(r"epoch \S+ loss (\S+)", printed)]
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True), "the loss falls"
    assert 0 <= right <= 1
    assert f"{right:.1%} of 200 unseen numbers" in printed
    assert re.search(r"^ +\d{3,6} -> \d*$", printed, re.MULTILINE)
