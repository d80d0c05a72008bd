"""The layer under every save: files are whole and hashed, and what a disk says is told from other mistakes."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from ostinato.checkpoint import disk as disk_module
from ostinato.checkpoint.disk import Disk, disk, is_disk_failure, using
from ostinato.checkpoint.io import build_write_error
from ostinato.checkpoint.tensor_file import allocate
from ostinato.core.errors import CheckpointError

PAGE = mmap.PAGESIZE


def pages(size: int) -> memoryview:
    memory = allocate(max(size, 1))
    memory[:size] = bytes(i % 251 for i in range(size))
    return memoryview(memory)[:size]


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE + 7])
def test_a_file_is_written_and_hashed(tmp_path: Path, size: int, direct: bool):
    content = pages(size)
    sealed = disk().write(tmp_path / "file", [content[: 2 * PAGE], content[2 * PAGE :]], direct=direct)
    assert (tmp_path / "file").read_bytes() == bytes(content)
    assert (sealed.size, sealed.sha256) == (size, hashlib.sha256(content).hexdigest())
    assert sealed.is_unchanged(tmp_path / "file")


def test_an_existing_file_is_not_written_over(tmp_path: Path):
    (tmp_path / "file").write_text("old")
    with pytest.raises(FileExistsError):
        disk().write(tmp_path / "file", [b"new"], direct=True)
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("refusing", ["open", "write"])
def test_where_direct_writing_is_refused_it_goes_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusing: str
):
    if not disk_module._DIRECT:
        pytest.skip("there is no direct writing here")
    real_open, real_write, refused = os.open, os.write, []

    def open_(path, flags, mode=0o777):
        if refusing == "open" and flags & disk_module._DIRECT:
            refused.append(path)
            raise OSError(errno.EINVAL, "no direct writing on this file system")
        return real_open(path, flags, mode)

    def write(descriptor, content):
        if refusing == "write" and not refused:
            refused.append(descriptor)
            raise OSError(errno.EINVAL, "not aligned to what this disk wants")
        return real_write(descriptor, content)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "write", write)
    content = pages(3 * PAGE + 5)
    disk().write(tmp_path / "file", [content], direct=True)
    assert refused
    assert (tmp_path / "file").read_bytes() == bytes(content)


@pytest.mark.parametrize("at_once", [1, 700, PAGE, PAGE + 1])
def test_a_disk_that_takes_little_at_a_time_gets_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: real(descriptor, content[:at_once]))
    content = pages(2 * PAGE + 3)
    disk().write(tmp_path / "file", [content], direct=False)
    assert (tmp_path / "file").read_bytes() == bytes(content)


def test_a_file_that_was_changed_is_not_what_was_sealed(tmp_path: Path):
    sealed = disk().write(tmp_path / "file", [b"content"])
    (tmp_path / "file").write_bytes(b"contents")
    assert not sealed.is_unchanged(tmp_path / "file")


def test_another_disk_takes_its_place_and_goes_again():
    other, usual = Disk(), disk()
    with using(other):
        assert disk() is other
    assert disk() is usual


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_what_a_disk_says_is_a_refusal(tmp_path: Path, code: int):
    error = OSError(code, os.strerror(code))
    assert is_disk_failure(error)
    assert is_disk_failure(build_write_error(tmp_path / "file", error))
    assert is_disk_failure(SafetensorError(f"I/O error: {os.strerror(code)} (os error {code})"))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a mistake"),
        FileNotFoundError(errno.ENOENT, "a file that a hook wanted to read"),
        CheckpointError(what="cannot save optimizer['state']", why="it is a function"),
        SafetensorError("invalid header"),
        KeyboardInterrupt(),
        None,
    ],
)
def test_other_mistakes_are_none(error):
    assert not is_disk_failure(error)
