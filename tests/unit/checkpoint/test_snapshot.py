"""Tensors taken at one moment and written at another; one save at a time, in a thread that ends with it."""

from __future__ import annotations

import mmap
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ostinato.checkpoint import snapshot as snapshot_module
from ostinato.checkpoint.background import Saves
from ostinato.checkpoint.snapshot import Snapshot, SnapshotMemory, find_free_memory
from ostinato.core.notices import forget_notices

PAGE = mmap.PAGESIZE

# ----------------------------------------------------------------------------------------------------------- snapshots


def test_what_is_written_is_what_was_taken(tmp_path: Path):
    weights = {"a": torch.arange(5.0), "b": torch.ones(3, 2)}
    snapshot = Snapshot(SnapshotMemory())
    snapshot(tmp_path / "model.safetensors", weights)
    assert not list(tmp_path.iterdir()), "written before it was asked for"
    weights["a"].fill_(-1)
    weights["b"].zero_()
    snapshot.write()
    read = load_file(tmp_path / "model.safetensors")
    assert torch.equal(read["a"], torch.arange(5.0))
    assert torch.equal(read["b"], torch.ones(3, 2))
    assert snapshot.sealed[tmp_path / "model.safetensors"].is_unchanged(tmp_path / "model.safetensors")


def test_without_memory_it_is_written_at_once(tmp_path: Path):
    weights = {"a": torch.arange(5.0)}
    snapshot = Snapshot(None)
    snapshot(tmp_path / "model.safetensors", weights)
    weights["a"].fill_(-1)
    assert torch.equal(load_file(tmp_path / "model.safetensors")["a"], torch.arange(5.0))
    assert (tmp_path / "model.safetensors") in snapshot.sealed
    snapshot.write()


def test_memory_stands_from_save_to_save(tmp_path: Path):
    memory = SnapshotMemory()
    for step in range(3):
        snapshot = Snapshot(memory)
        snapshot(tmp_path / "model.safetensors", {"a": torch.full((2 * PAGE,), float(step))})
        snapshot(tmp_path / "optimizer.safetensors", {"b": torch.full((3 * PAGE,), float(step))})
        assert memory.size == (2 * 4 + 1 + 3 * 4 + 1) * PAGE, "the second save took new memory"
        for path in tmp_path.iterdir():
            path.unlink()
        snapshot.write()
        assert load_file(tmp_path / "model.safetensors")["a"].eq(step).all()
        assert load_file(tmp_path / "optimizer.safetensors")["b"].eq(step).all()
    memory.clear()
    assert memory.size == 0


def test_memory_that_was_reserved_is_enough_for_all_files(tmp_path: Path):
    memory = SnapshotMemory()
    memory.reserve(10 * PAGE)
    for _ in range(2):
        snapshot = Snapshot(memory)
        for name in "ab":  # five pages each
            snapshot(tmp_path / name, {name: torch.arange(PAGE // 2)})
        snapshot(tmp_path / "d", {"d": torch.arange(PAGE)})  # 8 pages of numbers: the only one that does not fit
    assert memory.size == 10 * PAGE + 9 * PAGE
    snapshot.write()
    assert [load_file(tmp_path / name)[name].numel() for name in "abd"] == [PAGE // 2, PAGE // 2, PAGE]


def test_a_copy_that_does_not_fit_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    forget_notices()
    monkeypatch.setattr(snapshot_module, "find_free_memory", lambda: 2 * PAGE)
    memory = SnapshotMemory()
    snapshot = Snapshot(memory)
    snapshot(tmp_path / "small.safetensors", {"a": torch.ones(10)})
    snapshot(tmp_path / "large.safetensors", {"a": torch.ones(PAGE)})
    assert [path.name for path in tmp_path.iterdir()] == ["large.safetensors"]
    assert "large.safetensors is written while training waits" in capsys.readouterr().err
    assert memory.size == PAGE
    memory.reserve(3 * PAGE)
    assert memory.size == PAGE
    snapshot.write()
    assert load_file(tmp_path / "small.safetensors")["a"].sum() == 10


def test_free_memory_is_a_number_or_unknown():
    free = find_free_memory()
    assert free is None or free > 2**20


# --------------------------------------------------------------------------------------------------------------- saves


def test_one_at_a_time_and_what_follows_is_done_here():
    saves, order, gate = Saves(), [], threading.Event()

    def write(name: str) -> None:
        gate.wait(10)
        order.append((name, threading.current_thread() is threading.main_thread()))

    def then(error: BaseException | None) -> None:
        order.append((error, threading.current_thread() is threading.main_thread()))

    saves.start(lambda: write("first"), then, "first")
    assert not saves.landed
    gate.set()
    saves.start(lambda: write("second"), then, "second")
    assert saves.wait() >= 0
    assert order == [("first", False), (None, True), ("second", False), (None, True)]
    assert not saves.landed
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ostinato")]


def test_the_end_is_announced_and_an_error_raised_where_it_is_settled():
    saves = Saves()

    def fail() -> None:
        raise ZeroDivisionError("in the thread")

    def then(error: BaseException | None) -> None:
        if error is not None:
            raise error

    saves.start(fail, then, "failing")
    end = time.monotonic() + 10
    while not saves.landed and time.monotonic() < end:
        time.sleep(0.001)
    assert saves.landed
    with pytest.raises(ZeroDivisionError, match="in the thread"):
        saves.settle()
    assert not saves.landed
    saves.settle()
    assert saves.wait() < 1


def test_what_follows_may_be_written_in_the_background_too():
    saves, done = Saves(), []
    saves.start(lambda: None, lambda error: saves.start(lambda: done.append(1), lambda error: None, "tidy"), "save")
    saves.wait()
    assert done == [1]


def test_one_that_is_waited_for_is_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ostinato.checkpoint.background._QUIET_SECONDS", 0.001)
    gate, seen = threading.Event(), []

    def show(name: str | None, done: int, total: int) -> None:
        seen.append((name, done, total))
        if done:
            gate.set()

    saves = Saves(show)
    saves.start(lambda: gate.wait(10) and None, lambda error: None, "checkpoint-7", lambda: (len(seen), 9))
    saves.wait()
    assert seen[:2] == [("checkpoint-7", 0, 0), ("checkpoint-7", 1, 9)] and seen[-1] == (None, 0, 0)
    seen.clear()
    saves.start(lambda: None, lambda error: None, "quick")
    saves._thread.join()
    saves.wait()
    assert not seen


def test_a_snapshot_tells_how_much_of_it_is_written(tmp_path: Path):
    snapshot = Snapshot(SnapshotMemory())
    snapshot(tmp_path / "a.safetensors", {"a": torch.ones(1000)})
    assert snapshot.written == 0 < snapshot.size
    snapshot.write()
    assert snapshot.written == snapshot.size


def test_one_that_is_forgotten_is_not_waited_for_until_its_place_is_needed():
    saves, gate, ended = Saves(), threading.Event(), []
    saves.start(lambda: gate.wait(10) and None, ended.append, "slow")
    saves.forget()
    assert saves.is_forgotten
    assert saves.wait() < 1
    gate.set()
    saves.wait_for_forgotten()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ostinato")]
    assert ended == []
