"""What is put aside for an upload stays as it was, whatever happens to where it came from."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ostinato.hub import staging
from ostinato.hub.staging import StagedFolder

LARGE = b"x" * 2**20


@pytest.fixture
def run(tmp_path: Path) -> Path:
    checkpoint = tmp_path / "checkpoint-2"
    (checkpoint / "inner").mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(LARGE)
    (checkpoint / "config.json").write_text("{}")
    (checkpoint / "inner" / "vocab.txt").write_bytes(LARGE)
    (tmp_path / "log.txt").write_bytes(LARGE)
    (tmp_path / "model.safetensors").write_bytes(LARGE)
    return tmp_path


def nobody(name: str) -> bool:
    return False


def is_linked(path: Path) -> bool:
    return os.stat(path).st_nlink > 1


def test_large_files_are_linked_and_outlive_their_checkpoint(run: Path) -> None:
    staged = StagedFolder(run)
    staged.add_folder(run / "checkpoint-2", link_all=True, exclude=nobody)
    assert is_linked(staged.folder / "model.safetensors")
    assert is_linked(staged.folder / "inner" / "vocab.txt")
    assert not is_linked(staged.folder / "config.json")
    assert staged.size == 2 * len(LARGE) + 2
    shutil.rmtree(run / "checkpoint-2")
    assert (staged.folder / "model.safetensors").read_bytes() == LARGE
    staged.remove()
    assert not staged.folder.exists()


def test_files_that_may_be_written_to_are_copied_or_released(run: Path) -> None:
    staged = StagedFolder(run)
    staged.add_folder(run, link_all=False, exclude=lambda name: name.startswith((".", "checkpoint-")))
    assert not is_linked(staged.folder / "log.txt")  # which is appended to
    assert is_linked(staged.folder / "model.safetensors")
    staged.release(run)
    assert (run / "log.txt").exists()
    assert not (run / "model.safetensors").exists()
    (run / "model.safetensors").write_bytes(b"other")
    assert (staged.folder / "model.safetensors").read_bytes() == LARGE


def test_later_folders_override_earlier_ones(run: Path) -> None:
    (run / "config.json").write_text("older")
    staged = StagedFolder(run)
    staged.add_folder(run, link_all=False, exclude=lambda name: name.startswith((".", "checkpoint-")))
    staged.add_folder(run / "checkpoint-2", link_all=True, exclude=nobody)
    assert (staged.folder / "config.json").read_text() == "{}"
    assert (run / "config.json").read_text() == "older"


def test_a_file_system_without_links(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    staged = StagedFolder(run)
    staged.add_folder(run / "checkpoint-2", link_all=True, exclude=nobody)
    assert (staged.folder / "model.safetensors").read_bytes() == LARGE
    assert not is_linked(staged.folder / "model.safetensors")


def test_folders_of_killed_programs_are_removed(run: Path) -> None:
    left, kept = run / f"{staging.PREFIX}0", StagedFolder(run)
    left.mkdir()
    staging.remove_leftovers(run, keep={kept.folder})
    assert not left.exists()
    assert kept.folder.exists()
