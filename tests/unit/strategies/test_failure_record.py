"""Which process failed first, of several that the agent found dead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from ostinato.strategies.failure_record import find_first_failure, record_failure


def fail(path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch, second: float) -> str:
    """Return the file to which the error was written at that time."""
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    with pytest.raises(type(error)), record_failure():
        raise error
    os.utime(path, (second, second))
    return str(path)


def test_errors_of_the_same_second_have_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = fail(tmp_path / "0", RuntimeError("Connection closed by peer"), monkeypatch, 1e9 + 0.3)
    own = fail(tmp_path / "1", ValueError("a bad batch"), monkeypatch, 1e9 + 0.2)
    failures = {rank: ProcessFailure(rank, 1, 1, file) for rank, file in enumerate((lost, own))}
    assert find_first_failure(failures) == 1
    assert failures[1].error_file_data["message"]["message"] == "ValueError: a bad batch"


@pytest.mark.parametrize("code", [-9, 7])
def test_a_process_that_wrote_nothing_was_lost_first(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = fail(tmp_path / "0", RuntimeError("Connection closed by peer"), monkeypatch, 1e9)
    failures = {0: ProcessFailure(0, 1, 1, lost), 1: ProcessFailure(1, 2, code, str(tmp_path / "1"))}
    assert find_first_failure(failures) == 1


def test_nothing_is_written_without_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    with pytest.raises(ValueError, match="own"), record_failure():
        raise ValueError("own")
