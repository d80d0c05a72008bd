"""The examples run, in a shortened form."""

from __future__ import annotations

import importlib.util
import re
import sqlite3
import sys
from contextlib import closing
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
    from tests.support.apis import load_library

    load_library("transformers")
    monkeypatch.chdir(tmp_path)
    right = loaded("seq2seq_reverse").main(rows=320, epochs=3)
    printed = capsys.readouterr().out
    losses = [float(loss) for loss in re.findall(r"epoch \S+ loss (\S+)", printed)]
    assert len(losses) == 4  # the first step's, and one for each epoch
    assert losses == sorted(losses, reverse=True), "the loss falls"
    assert 0 <= right <= 1
    assert f"{right:.1%} of 200 unseen numbers" in printed
    assert re.search(r"^ +\d{3,6} -> \d*$", printed, re.MULTILINE)


@pytest.fixture
def _transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("datasets")
    from tests.support.apis import load_library

    load_library("transformers")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")  # its threads would outlive the test


@pytest.mark.usefixtures("_transformers")
def test_docstrings_are_classified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    accuracy, by_largest = loaded("classifier").main(epochs=3)
    printed = capsys.readouterr().out
    assert accuracy > by_largest + 0.2
    assert f"{accuracy:.1%} of 200 unseen docstrings" in printed
    assert re.search(r"asyncio 0\.\d\d, email 0\.\d\d", printed)


def test_dates_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    after, before = loaded("two_tower").main(epochs=1)
    assert before < 0.2 < 0.5 < after
    assert f"{after:.1%} of 297 unseen dates" in capsys.readouterr().out


@pytest.mark.usefixtures("_transformers")
def test_a_language_model_knows_more_than_frequencies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    perplexity, by_frequency = loaded("language_model").main(epochs=1.5)
    assert perplexity < 0.8 * by_frequency
    assert "'Return a list of" in capsys.readouterr().out


@pytest.mark.usefixtures("_transformers")
def test_an_adapter_learns_and_the_model_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    result = loaded("lora").main(blocks=400, epochs=2)
    assert result["python after"] < 0.9 * result["python before"]
    assert result["english without the adapter"] == result["english"]
    assert "adapter_model.safetensors" in capsys.readouterr().out


@pytest.mark.usefixtures("_transformers")
def test_without_peft_the_example_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(SystemExit, match="pip install peft"):
        loaded("lora")


def test_numbers_arrive_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example = loaded("log_elsewhere")
    error, of_the_mean = example.main(epochs=6)
    assert error < 0.5 * of_the_mean
    assert f"In the end {error:.4f}" in capsys.readouterr().out
    example.main(epochs=1)  # a second run goes into the same file
    with closing(sqlite3.connect(tmp_path / "runs" / "log_elsewhere" / "numbers.sqlite")) as database:
        assert database.execute("SELECT run, count(*) FROM numbers WHERE name = 'loss' GROUP BY run").fetchall() == [
            (1, 6),
            (2, 1),
        ]
