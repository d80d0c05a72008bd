"""A directory appears whole or not at all, and damage to it is found."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from ostinato.checkpoint import atomic
from ostinato.checkpoint.atomic import (
    atomic_directory,
    find_defect,
    is_checkpoint,
    sweep_leftovers,
    verify,
)
from ostinato.core.errors import CheckpointError

CONTENT = {"model.safetensors": b"weights" * 100, "trainer_state.json": b"{}", "empty.txt": b""}
LISTED = [*CONTENT, "adapter/adapter_model.safetensors"]


def write(target: Path, text: bytes = b"") -> Path:
    with atomic_directory(target) as scratch:
        for name, content in CONTENT.items():
            (scratch / name).write_bytes(content + text)
        (scratch / "adapter").mkdir()
        (scratch / "adapter" / "adapter_model.safetensors").write_bytes(b"adapter" + text)
    return target


def write_half(target: Path, error: BaseException) -> None:
    with atomic_directory(target) as scratch:
        (scratch / "model.safetensors").write_bytes(b"half")
        raise error


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write(tmp_path / "out" / "checkpoint-20")


# ---------------------------------------------------------------------------------------------------------- appearing


def test_a_finished_directory_is_whole_and_alone(checkpoint: Path):
    verify(checkpoint)
    assert is_checkpoint(checkpoint)
    assert os.listdir(checkpoint.parent) == ["checkpoint-20"]
    assert sorted(os.listdir(checkpoint)) == sorted([*CONTENT, "adapter", "MANIFEST.json"])


def test_the_manifest_lists_every_file_and_knows_the_step(checkpoint: Path):
    manifest = json.loads((checkpoint / "MANIFEST.json").read_text())
    assert (manifest["format"], manifest["step"]) == (1, 20)
    assert {name: entry["size"] for name, entry in manifest["files"].items()} == {
        name: len(content) for name, content in CONTENT.items()
    }
    assert list(manifest["directories"]["adapter"]["files"]) == ["adapter_model.safetensors"]


def test_a_directory_that_is_no_step_has_none(tmp_path: Path):
    assert json.loads((write(tmp_path / "best") / "MANIFEST.json").read_text())["step"] is None


def test_while_it_is_written_nothing_can_be_seen(tmp_path: Path):
    with atomic_directory(tmp_path / "checkpoint-20") as scratch:
        assert scratch.parent == tmp_path
        assert scratch.name.startswith(".")
        assert not (tmp_path / "checkpoint-20").exists()


@pytest.mark.parametrize("error", [RuntimeError, OSError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_nothing_behind(tmp_path: Path, error: type[BaseException]):
    with pytest.raises(error, match="in the middle"):
        write_half(tmp_path / "checkpoint-20", error("in the middle"))
    assert os.listdir(tmp_path) == []


def test_an_exception_leaves_an_existing_directory_untouched(checkpoint: Path):
    before = (checkpoint / "MANIFEST.json").read_bytes()
    with pytest.raises(RuntimeError):
        write_half(checkpoint, RuntimeError())
    verify(checkpoint)
    assert (checkpoint / "MANIFEST.json").read_bytes() == before
    assert os.listdir(checkpoint.parent) == ["checkpoint-20"]


@pytest.mark.parametrize("failing", ["rename", "fsync"])
@pytest.mark.parametrize("call", range(1, 12))
def test_a_failure_while_committing_leaves_an_existing_directory_untouched(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, failing: str, call: int
):
    before = (checkpoint / "MANIFEST.json").read_bytes()
    real, calls = getattr(os, failing), 0

    def fail_once(*arguments):
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError("the disk gave up")
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, failing, fail_once)
        error = None
        try:
            write(checkpoint, b"new")
        except CheckpointError as caught:
            error = caught
    failed = error is not None
    assert not failed or "the disk gave up" in str(error)
    verify(checkpoint)
    assert failed == (calls >= call), "the failure was swallowed"
    assert ((checkpoint / "MANIFEST.json").read_bytes() == before) == failed
    assert os.listdir(checkpoint.parent) == ["checkpoint-20"]


def test_an_existing_directory_is_replaced_as_a_whole(checkpoint: Path):
    (checkpoint / "left over").write_text("from before")
    write(checkpoint, b"new")
    verify(checkpoint)
    assert (checkpoint / "trainer_state.json").read_bytes() == b"{}new"
    assert not (checkpoint / "left over").exists()
    assert os.listdir(checkpoint.parent) == ["checkpoint-20"]


def test_replacing_a_link_leaves_what_it_leads_to(tmp_path: Path):
    elsewhere = write(tmp_path / "elsewhere")
    (tmp_path / "checkpoint-20").symlink_to(elsewhere)
    write(tmp_path / "checkpoint-20", b"new")
    verify(elsewhere)
    verify(tmp_path / "checkpoint-20")
    assert not (tmp_path / "checkpoint-20").is_symlink()


def test_a_scratch_directory_of_a_killed_run_is_no_obstacle(tmp_path: Path):
    stale = tmp_path / ".checkpoint-20.partial"
    stale.mkdir()
    (stale / "stale").write_text("x")
    (stale / ".writing-1234").touch()
    assert not (write(tmp_path / "checkpoint-20") / "stale").exists()


def test_every_file_and_directory_is_synced_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    events: list[str] = []
    real_sync, real_rename = os.fsync, os.rename

    def sync(descriptor: int) -> None:
        events.append(os.readlink(f"/proc/self/fd/{descriptor}") if os.path.exists("/proc/self/fd") else "?")
        real_sync(descriptor)

    def rename(source, target) -> None:
        events.append("rename")
        real_rename(source, target)

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("needs /proc to name descriptors")
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "rename", rename)
    write(tmp_path / "checkpoint-20")
    scratch = os.path.realpath(tmp_path / ".checkpoint-20.partial")
    before, after = events[: events.index("rename")], events[events.index("rename") + 1 :]
    assert {f"{scratch}/{name}" for name in [*LISTED, "MANIFEST.json", "adapter"]} | {scratch} <= set(before)
    assert before[-2:] == [f"{scratch}/MANIFEST.json", scratch]
    assert after == [os.path.realpath(tmp_path)]


@pytest.mark.parametrize("kind", ["link", "pipe", "MANIFEST.json"])
def test_what_cannot_be_part_of_a_checkpoint_is_refused(tmp_path: Path, kind: str):
    make = {
        "link": lambda path: path.symlink_to(tmp_path),
        "pipe": os.mkfifo,
        "MANIFEST.json": lambda path: path.write_text("{}"),
    }[kind]
    with pytest.raises(CheckpointError, match=kind), atomic_directory(tmp_path / "checkpoint-20") as scratch:
        make(scratch / kind)
    assert os.listdir(tmp_path) == []


# --------------------------------------------------------------------------------------------------- several processes


def together(target: Path, bodies: list) -> list[BaseException | None]:
    """Each body in a thread of its own, the first one leading, with a real barrier."""
    barrier = threading.Barrier(len(bodies), timeout=20)
    outcome: list[BaseException | None] = [None] * len(bodies)

    def run(rank: int) -> None:
        try:
            with atomic_directory(target, leader=rank == 0, barrier=lambda: barrier.wait() and None) as scratch:
                bodies[rank](scratch)
        except BaseException as error:
            outcome[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcome


def part(name: str):
    return lambda scratch: (scratch / name).write_text(name)


def failing(scratch: Path) -> None:
    raise ZeroDivisionError("mine")


def test_every_process_writes_its_part(tmp_path: Path):
    assert together(tmp_path / "checkpoint-20", [part("a"), part("b"), part("c")]) == [None] * 3
    verify(tmp_path / "checkpoint-20")
    assert sorted(os.listdir(tmp_path / "checkpoint-20")) == ["MANIFEST.json", "a", "b", "c"]


@pytest.mark.parametrize("rank", range(3))
def test_if_one_process_fails_all_of_them_know(tmp_path: Path, rank: int):
    write(tmp_path / "checkpoint-20")
    bodies = [part("a"), part("b"), part("c")]
    bodies[rank] = failing
    errors = together(tmp_path / "checkpoint-20", bodies)
    assert isinstance(errors.pop(rank), ZeroDivisionError)
    for error in errors:
        assert isinstance(error, CheckpointError)
        assert "another process" in str(error)
    verify(tmp_path / "checkpoint-20")
    assert os.listdir(tmp_path) == ["checkpoint-20"]


def test_if_the_directory_cannot_be_made_all_of_them_know(tmp_path: Path):
    (tmp_path / "out").write_text("a file where the directory should be")
    errors = together(tmp_path / "out" / "checkpoint-20", [part("a"), part("b")])
    assert all(isinstance(error, OSError) for error in errors)


def test_if_committing_fails_all_of_them_know(tmp_path: Path):
    errors = together(tmp_path / "checkpoint-20", [part("MANIFEST.json"), part("b")])
    assert all(isinstance(error, CheckpointError) for error in errors)
    assert os.listdir(tmp_path) == []


# ------------------------------------------------------------------------------------------------------------- damage


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def extend(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def link(path: Path) -> None:
    copy = path.with_name("copy")
    path.rename(copy)
    path.symlink_to(copy)


def directory_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe_instead(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE = [truncate, empty, Path.unlink, flip, extend, link, directory_instead, pipe_instead]
WORDS = {"truncate": "truncated", "empty": "truncated", "unlink": "missing", "flip": "altered", "extend": "altered"}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", [*(name for name in LISTED if name != "empty.txt"), "MANIFEST.json"])
def test_every_damage_to_every_file_is_found(checkpoint: Path, name: str, damage):
    damage(checkpoint / name)
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")) as caught:
        verify(checkpoint)
    if name != "MANIFEST.json":
        assert WORDS.get(damage.__name__, "") in str(caught.value)


@pytest.mark.parametrize("damage", [truncate, empty, Path.unlink], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", [*(name for name in LISTED if name != "empty.txt"), "MANIFEST.json"])
def test_discovery_sees_what_a_crash_does(checkpoint: Path, name: str, damage):
    (checkpoint / "optimizer.json").write_text("{}")  # ours, so a missing manifest is not taken for transformers'
    damage(checkpoint / name)
    assert not is_checkpoint(checkpoint)
    assert name in str(find_defect(checkpoint))


def test_every_bit_of_the_manifest_counts(checkpoint: Path):
    original = (checkpoint / "MANIFEST.json").read_bytes()
    verify(checkpoint)
    survived = 0
    for position in range(0, len(original), 3):
        content = bytearray(original)
        content[position] ^= 1
        (checkpoint / "MANIFEST.json").write_bytes(content)
        try:
            verify(checkpoint)
            survived += json.loads(content) != json.loads(original)
        except CheckpointError:
            pass
    assert survived == 0


def test_sizes_alone_can_be_asked_for(checkpoint: Path):
    flip(checkpoint / "model.safetensors")
    verify(checkpoint, contents=False)
    with pytest.raises(CheckpointError, match="altered"):
        verify(checkpoint)


def test_files_added_later_are_not_its_business(checkpoint: Path):
    (checkpoint / "notes.txt").write_text("written by a callback")
    verify(checkpoint)


def test_no_directory_is_no_checkpoint(tmp_path: Path):
    with pytest.raises(CheckpointError, match="checkpoint-9"):
        verify(tmp_path / "checkpoint-9")
    assert not is_checkpoint(tmp_path / "checkpoint-9")


# ------------------------------------------------------------------------------------------ hostile manifests


def forge(checkpoint: Path, **changes) -> None:
    """A manifest that matches its own hash: only its content is wrong."""
    content = json.loads((checkpoint / "MANIFEST.json").read_text())
    content.pop("sha256")
    content.update(changes)
    content["sha256"] = atomic._hash_manifest(content)
    (checkpoint / "MANIFEST.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "name",
    ["../secret", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "adapter/../../secret", "C:secret", "a\0b"],
)
@pytest.mark.parametrize("section", ["files", "directories"])
def test_names_that_lead_out_are_refused_before_anything_is_opened(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, name: str, section: str
):
    (checkpoint.parent / "secret").write_text("secret")
    entry = {"size": 6, "sha256": "0"} if section == "files" else {"files": {}, "directories": {}}
    forge(checkpoint, **{"files": {}, "directories": {}, section: {name: entry}})
    opened: list[Path] = []
    real = atomic.io.open_regular
    monkeypatch.setattr(atomic.io, "open_regular", lambda path: opened.append(path) or real(path))
    with pytest.raises(CheckpointError, match="leads out"):
        verify(checkpoint)
    assert opened == [checkpoint / "MANIFEST.json"]


def test_a_directory_that_became_a_link_is_not_followed(checkpoint: Path, tmp_path: Path):
    (checkpoint / "adapter").rename(tmp_path / "adapter")
    (checkpoint / "adapter").symlink_to(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match="adapter is altered"):
        verify(checkpoint)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"files": []},
        {"files": {"a": 3}},
        {"files": {"a": {"size": "1", "sha256": ""}}},
        {"directories": None},
        {"directories": {"adapter": []}},
    ],
)
def test_a_manifest_of_another_shape_is_refused(checkpoint: Path, changes: dict):
    forge(checkpoint, **changes)
    with pytest.raises(CheckpointError):
        verify(checkpoint)


@pytest.mark.parametrize("text", ["", "[]", "3", "null", "[" * 100_000, '{"sha256": 1e999}', "\xff"])
def test_a_manifest_that_is_none_is_refused(checkpoint: Path, text: str):
    (checkpoint / "MANIFEST.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"MANIFEST\.json"):
        verify(checkpoint)


def test_a_huge_manifest_is_not_read(checkpoint: Path):
    with open(checkpoint / "MANIFEST.json", "r+b") as file:
        file.truncate(2**33)  # sparse: takes no room
    with pytest.raises(CheckpointError, match="larger than"):
        verify(checkpoint)


# ----------------------------------------------------------------------------------------------- without our manifest


def test_what_transformers_finished_is_a_checkpoint(tmp_path: Path):
    foreign = tmp_path / "checkpoint-5"
    foreign.mkdir()
    (foreign / "model.safetensors").write_bytes(b"x")
    assert not is_checkpoint(foreign)
    (foreign / "trainer_state.json").write_text("{}")
    assert is_checkpoint(foreign)
    with pytest.raises(CheckpointError, match=r"MANIFEST\.json is missing"):
        verify(foreign)


def test_ours_without_its_manifest_is_not_taken_for_transformers(checkpoint: Path):
    (checkpoint / "training_args.json").write_text("{}")
    (checkpoint / "MANIFEST.json").unlink()
    assert not is_checkpoint(checkpoint)


# ---------------------------------------------------------------------------------------------------------- leftovers


def test_sweeping_clears_what_killed_runs_left(checkpoint: Path):
    out = checkpoint.parent
    for name in (".checkpoint-30.partial", ".checkpoint-10.trash", ".checkpoint-20.replaced"):
        (out / name).mkdir()
    for name in (".git", ".mine.partial", "checkpoint-20.partial"):
        (out / name).mkdir()
    assert len(sweep_leftovers(out)) == 3
    assert sorted(os.listdir(out)) == [".git", ".mine.partial", "checkpoint-20", "checkpoint-20.partial"]


def test_sweeping_brings_back_what_was_being_replaced(checkpoint: Path):
    checkpoint.rename(checkpoint.with_name(".checkpoint-20.replaced"))
    sweep_leftovers(checkpoint.parent)
    verify(checkpoint)
    assert os.listdir(checkpoint.parent) == ["checkpoint-20"]


def test_the_best_model_comes_back_too(tmp_path: Path):
    write(tmp_path / "best-model").rename(tmp_path / ".best-model.replaced")
    (tmp_path / ".best-model.partial").mkdir()
    sweep_leftovers(tmp_path)
    verify(tmp_path / "best-model")
    assert os.listdir(tmp_path) == ["best-model"]


def test_sweeping_nothing(tmp_path: Path):
    assert sweep_leftovers(tmp_path / "not there") == []
