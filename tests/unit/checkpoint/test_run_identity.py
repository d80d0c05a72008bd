"""Whose checkpoint is it: nothing of another run is deleted, replaced or continued."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from ostinato.checkpoint import identity
from ostinato.checkpoint.atomic import atomic_directory, verify
from ostinato.checkpoint.file_names import RUN_NAME
from ostinato.checkpoint.identity import (
    choose_run_id,
    create_run_id,
    describe_other_runs,
    find_latest_checkpoint,
    find_other_runs,
    find_own_checkpoint,
    move_other_run,
    read_run_id,
    write_run_id,
)
from ostinato.checkpoint.retention import get_last_checkpoint, list_checkpoints, rotate
from ostinato.checkpoint.run_directory import find_best_model
from ostinato.core.errors import CheckpointError, ConfigError
from ostinato.core.notices import forget_notices
from tests.support import launcher

OLD, NEW, THIRD = "20260114-093005-4f1c2a", "20260115-080000-00ff00", "20260116-080000-abcdef"


@pytest.fixture(autouse=True)
def fresh_notices() -> None:
    forget_notices()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds pass between saves, not between tests."""
    now = [1_768_383_000.0]

    def tick() -> float:
        now[0] += 1
        return now[0]

    monkeypatch.setattr(identity.time, "time", tick)
    return now


def save(out: Path, step: int | str, run_id: str | None, text: str = "") -> Path:
    """A checkpoint as a run writes it."""
    target = out / (f"checkpoint-{step}" if isinstance(step, int) else step)
    with atomic_directory(target) as scratch:
        (scratch / "model.safetensors").write_text(f"{run_id} {step} {text}")
        (scratch / "trainer_state.json").write_text("{}")
        if run_id is not None:
            write_run_id(scratch, run_id)
            move_other_run(target, run_id)
    return target


def by_transformers(out: Path, step: int, seconds: float) -> Path:
    path = out / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "trainer_state.json").write_text("{}")
    os.utime(path / "trainer_state.json", (seconds, seconds))
    return path


def hashes(out: Path) -> set[str]:
    return {hashlib.sha256(path.read_bytes()).hexdigest() for path in out.rglob("*") if path.is_file()}


# ---- ids ---------------------------------------------------------------------------------------------------------


def test_ids_differ_sort_by_time_and_leave_random_streams_alone(monkeypatch: pytest.MonkeyPatch):
    before = random.getstate()
    assert len({create_run_id() for _ in range(100)}) == 100
    assert random.getstate() == before
    seconds = [0, 59, 3600, 86400 * 365, 1_768_383_005]
    ids = []
    for second in seconds:
        monkeypatch.setattr(identity.time, "gmtime", lambda second=second: time.struct_time(_utc(second)))
        ids.append(create_run_id())
    assert ids == sorted(ids)
    assert ids[-1].startswith("20260114-093005-") and len(ids[-1]) == 22


def _utc(second: float) -> tuple[int, ...]:
    import datetime

    return tuple(datetime.datetime.fromtimestamp(second, datetime.timezone.utc).utctimetuple())


def test_an_id_is_part_of_the_checkpoint_and_of_its_manifest(tmp_path: Path):
    path = save(tmp_path, 10, OLD)
    assert read_run_id(path) == OLD
    assert json.loads((path / RUN_NAME).read_text())["run_id"] == OLD
    (path / RUN_NAME).write_text((path / RUN_NAME).read_text().replace(OLD, NEW))
    with pytest.raises(CheckpointError, match=f"{RUN_NAME} is altered"):
        verify(path)


@pytest.mark.parametrize("bad", ["", "../x", "a/b", ".hidden", "a b", "-x", "x" * 65, "a\n"])
def test_an_id_cannot_lead_anywhere(tmp_path: Path, bad: str):
    with pytest.raises(ConfigError, match="cannot be the id of a run"):
        write_run_id(tmp_path, bad)
    (tmp_path / RUN_NAME).write_text(json.dumps({"format": 1, "run_id": bad, "saved_at": 1.0}))
    assert read_run_id(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run_id": "x"}', '{"format": 2, "run_id": "x"}', '"x"', "\0"])
def test_what_does_not_say_whose_it_is_is_nobodys(tmp_path: Path, content: str):
    assert read_run_id(tmp_path) is None
    assert read_run_id(tmp_path / "not there") is None
    (tmp_path / RUN_NAME).write_text(content)
    assert read_run_id(tmp_path) is None


# ---- rotation ----------------------------------------------------------------------------------------------------


def test_only_the_checkpoints_of_the_run_count_and_go(tmp_path: Path):
    others = [save(tmp_path, step, run) for step, run in ((5, OLD), (15, None), (500, OLD))]
    own = [save(tmp_path, step, NEW) for step in (10, 20, 30)]
    before = {path: hashes(path) for path in others}
    assert list_checkpoints(tmp_path, run_id=NEW) == own
    assert rotate(tmp_path, 3, run_id=NEW) == []
    assert rotate(tmp_path, 1, keep=[own[0]], run_id=NEW) == [own[1]]
    assert rotate(tmp_path, 1, run_id=NEW) == [own[0]], "the newest of the run stays, whatever others have"
    assert {path: hashes(path) for path in others} == before
    assert list_checkpoints(tmp_path) == [others[0], others[1], own[2], others[2]]
    assert rotate(tmp_path, 1, run_id=THIRD) == []


def test_without_an_id_all_count_as_before(tmp_path: Path):
    for step, run in ((10, OLD), (20, NEW), (30, None)):
        save(tmp_path, step, run)
    assert [path.name for path in rotate(tmp_path, 1)] == ["checkpoint-10", "checkpoint-20"]


def test_a_damaged_checkpoint_is_not_deleted_for_a_run(tmp_path: Path):
    for step in (10, 20, 30):
        save(tmp_path, step, NEW)
    (tmp_path / "checkpoint-10" / RUN_NAME).write_text("")
    assert [path.name for path in rotate(tmp_path, 1, run_id=NEW)] == ["checkpoint-20"]
    assert (tmp_path / "checkpoint-10").exists()


# ---- a used directory ----------------------------------------------------------------------------------------------


def test_a_fresh_run_hears_who_was_there(tmp_path: Path):
    assert find_other_runs(tmp_path / "not there", NEW) == []
    assert find_other_runs(tmp_path, NEW) == []
    for step, run in ((20, OLD), (3, NEW), (10, None)):
        save(tmp_path, step, run)
    (tmp_path / "checkpoint-30").mkdir()
    assert [path.name for path in find_other_runs(tmp_path, NEW)] == ["checkpoint-10", "checkpoint-20"]
    save(tmp_path, 20, NEW)
    assert find_other_runs(tmp_path, NEW) == [tmp_path / "checkpoint-10", tmp_path / f"run-{OLD}" / "checkpoint-20"]


def test_the_line_about_others_says_how_many_how_large_and_where(tmp_path: Path):
    paths = [save(tmp_path, step, OLD, "x" * 1000) for step in range(1, 8)]
    size = sum(file.stat().st_size for path in paths for file in path.iterdir())
    assert describe_other_runs(paths) == (
        f"checkpoints of other runs are kept: 7 checkpoints, {size / 1000:.1f} kB "
        f"({', '.join(map(str, paths[:5]))} and 2 more)"
    )
    assert "kept: 1 checkpoint, " in describe_other_runs(paths[:1])


def test_two_runs_in_one_directory_keep_what_the_first_wrote(tmp_path: Path, capsys: pytest.CaptureFixture):
    for step in (2, 4, 6):
        save(tmp_path, step, OLD)
    before = hashes(tmp_path)
    for step in range(1, 9):
        save(tmp_path, step, NEW)
        rotate(tmp_path, 2, run_id=NEW)
    assert before <= hashes(tmp_path), "file by file"
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-7", "checkpoint-8", f"run-{OLD}"]
    home = tmp_path / f"run-{OLD}"
    assert [path.name for path in list_checkpoints(home)] == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    for path in list_checkpoints(home):
        verify(path)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}/checkpoint-2 belongs to another run and is moved to {home}/checkpoint-2" in line


def test_a_run_replaces_its_own(tmp_path: Path):
    path = save(tmp_path, 2, NEW, "first")
    assert move_other_run(path, NEW) is None
    assert move_other_run(tmp_path / "checkpoint-3", NEW) is None
    save(tmp_path, 2, NEW, "second")
    assert os.listdir(tmp_path) == ["checkpoint-2"]
    assert (path / "model.safetensors").read_text().endswith("second")


def test_what_is_nobodys_makes_room_too_and_never_takes_anothers_place(tmp_path: Path):
    places = []
    for number in range(3):
        (tmp_path / "checkpoint-2").mkdir()
        (tmp_path / "checkpoint-2" / "trainer_state.json").write_text(str(number))
        places.append(move_other_run(tmp_path / "checkpoint-2", NEW))
    (tmp_path / "checkpoint-2").write_text("a file")
    places.append(move_other_run(tmp_path / "checkpoint-2", NEW))
    assert [place.parent.name for place in places if place] == [
        *("run-unknown", "run-unknown-2", "run-unknown-3", "run-unknown-4"),
    ]
    assert [
        (tmp_path / f"run-unknown{end}/checkpoint-2/trainer_state.json").read_text() for end in ("", "-2", "-3")
    ] == [
        *("0", "1", "2"),
    ]


def test_weights_kept_apart_make_room_as_checkpoints_do(tmp_path: Path):
    save(tmp_path, "best-model", OLD)
    save(tmp_path, "best-model", NEW)
    assert read_run_id(tmp_path / "best-model") == NEW
    assert find_own_checkpoint(tmp_path / "best-model", OLD) == tmp_path / f"run-{OLD}" / "best-model"


def test_a_place_that_cannot_be_made_keeps_the_old_one(tmp_path: Path):
    path = save(tmp_path, 2, OLD)
    (tmp_path / f"run-{OLD}").write_text("a file")
    before = hashes(path)
    with pytest.raises(CheckpointError, match="another run's checkpoint has that name") as caught:
        save(tmp_path, 2, NEW)
    assert "another output_dir" in caught.value.fix
    assert hashes(path) == before
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-2", f"run-{OLD}"]


def test_a_remembered_path_leads_to_the_runs_own(tmp_path: Path):
    remembered = str(save(tmp_path, 2, OLD))
    assert find_own_checkpoint(remembered, OLD) == Path(remembered)
    save(tmp_path, 2, NEW)
    assert find_own_checkpoint(remembered, OLD) == tmp_path / f"run-{OLD}" / "checkpoint-2"
    assert find_own_checkpoint(remembered, NEW) == Path(remembered)
    assert find_own_checkpoint(remembered, THIRD) is None
    assert find_own_checkpoint(tmp_path / "not" / "there", OLD) is None


def test_the_best_of_a_run_moves_with_its_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for step in (2, 4):
        save(tmp_path / "first", step, OLD)
    remembered = str(tmp_path / "first" / "checkpoint-2")

    def best(checkpoint: Path) -> str | None:
        return find_best_model(str(checkpoint), remembered)

    copied = Path(shutil.copytree(tmp_path / "first", tmp_path / "second"))
    assert best(copied / "checkpoint-4") == str(copied / "checkpoint-2"), "the copy's own is there"
    shutil.rmtree(tmp_path / "first")
    assert best(copied / "checkpoint-4") == str(copied / "checkpoint-2")
    aside = copied / f"run-{OLD}"
    save(copied, 2, NEW)
    assert best(copied / "checkpoint-4") == str(aside / "checkpoint-2"), "another run has the name now"
    save(copied, 4, NEW)
    assert best(aside / "checkpoint-4") == str(aside / "checkpoint-2")
    assert capsys.readouterr().err.count("is not there") == 0


def test_a_best_that_is_gone_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    checkpoint = save(tmp_path, 4, OLD)
    assert find_best_model(str(checkpoint), str(tmp_path / "checkpoint-2")) is None
    assert "checkpoint-2, which does not exist" in capsys.readouterr().err


def test_killed_at_any_moment_both_are_whole(tmp_path: Path):
    """The old one has its name or its new place; what is at the name is whole, and of one run."""
    script = """
import os, signal, sys
from pathlib import Path
from ostinato.checkpoint.identity import move_other_run, write_run_id
from ostinato.checkpoint.atomic import atomic_directory
assert "torch" not in sys.modules
target, run_id, kill_at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
calls = 0

def dying(function):
    def wrapped(*arguments, **keywords):
        global calls
        calls += 1
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **keywords)
    return wrapped

with atomic_directory(target) as scratch:
    (scratch / "model.safetensors").write_text("new")
    write_run_id(scratch, run_id)
    for name in ("fsync", "rename", "mkdir", "unlink"):
        setattr(os, name, dying(getattr(os, name)))
    move_other_run(target, run_id)
"""
    (program := tmp_path / "child.py").write_text(script)
    outcomes = []
    for kill_at in range(1, 60):
        out = tmp_path / str(kill_at)
        old = hashes(save(out, 2, OLD))
        child = launcher.run(program, out / "checkpoint-2", NEW, kill_at, imports=("ostinato.checkpoint.atomic",))
        assert child.returncode in (0, -signal.SIGKILL)
        kept = find_own_checkpoint(out / "checkpoint-2", OLD)
        assert kept is not None and hashes(kept) == old
        latest = find_latest_checkpoint(out)
        assert latest is not None
        verify(latest)
        outcomes.append(read_run_id(latest))
        if child.returncode == 0:
            break
    assert outcomes[-1] == NEW and outcomes.count(OLD) > 3
    assert outcomes == sorted(outcomes), "once the new one is there it stays"


# ---- resuming ------------------------------------------------------------------------------------------------------


def test_there_may_be_nothing_to_resume(tmp_path: Path):
    assert find_latest_checkpoint(tmp_path) is None
    assert find_latest_checkpoint(tmp_path / "not there") is None
    (tmp_path / "checkpoint-3").mkdir()
    assert find_latest_checkpoint(tmp_path) is None


@pytest.mark.parametrize("run_id", [None, OLD])
def test_of_a_single_run_it_is_the_last_one(tmp_path: Path, clock: list[float], run_id: str | None):
    for step in (100, 9, 20):
        save(tmp_path, step, run_id)
    assert str(find_latest_checkpoint(tmp_path)) == get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-100")


def test_runs_are_not_mixed(tmp_path: Path, clock: list[float]):
    for step in (100, 200, 500):
        save(tmp_path, step, OLD)
    assert find_latest_checkpoint(tmp_path) == tmp_path / "checkpoint-500"
    for step in (10, 100):
        save(tmp_path, step, NEW)
        assert find_latest_checkpoint(tmp_path) == tmp_path / f"checkpoint-{step}"
    assert get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-500"), "as transformers sees it"
    save(tmp_path, 600, OLD)  # the old run goes on
    assert find_latest_checkpoint(tmp_path) == tmp_path / "checkpoint-600"


def test_a_damaged_last_one_gives_way_to_the_one_before_of_the_same_run(tmp_path: Path, clock: list[float]):
    for step, run in ((100, OLD), (10, NEW), (20, NEW)):
        save(tmp_path, step, run)
    (tmp_path / "checkpoint-20" / "model.safetensors").write_text("")
    assert find_latest_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


def test_one_that_was_moved_aside_is_found_while_it_is_the_last(tmp_path: Path, clock: list[float]):
    path = save(tmp_path, 2, OLD)
    aside = move_other_run(path, NEW)  # and the new run died before its own was there
    assert aside is not None
    assert find_latest_checkpoint(tmp_path) == aside
    assert choose_run_id(aside) == OLD
    save(tmp_path, 4, OLD)
    assert find_latest_checkpoint(tmp_path) == tmp_path / "checkpoint-4"


def test_times_survive_a_copy(tmp_path: Path, clock: list[float]):
    for step, run in ((500, OLD), (10, NEW)):
        save(tmp_path / "a", step, run)
    (tmp_path / "b").mkdir()
    for name in ("checkpoint-10", "checkpoint-500"):  # in this order: the old run's files are the newer ones
        shutil.copytree(tmp_path / "a" / name, tmp_path / "b" / name, copy_function=shutil.copyfile)
    later = time.time_ns() + 10**9
    os.utime(tmp_path / "b" / "checkpoint-500" / "MANIFEST.json", ns=(later, later))
    assert find_latest_checkpoint(tmp_path / "b") == tmp_path / "b" / "checkpoint-10"


def test_what_transformers_wrote_counts_by_its_files(tmp_path: Path, clock: list[float]):
    now = clock[0]
    by_transformers(tmp_path, 50, now - 20)
    by_transformers(tmp_path, 60, now - 10)
    assert find_latest_checkpoint(tmp_path) == tmp_path / "checkpoint-60"
    save(tmp_path, 10, NEW)
    assert find_latest_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    by_transformers(tmp_path, 20, now + 1000)
    assert find_latest_checkpoint(tmp_path) == tmp_path / "checkpoint-60", "nobody's count as one run"


@pytest.mark.parametrize("saved_at", ["soon", None, True, -1, 1e300, float("nan"), 10**400])
def test_a_time_that_is_none_is_not_believed(tmp_path: Path, clock: list[float], saved_at: object):
    path = by_transformers(tmp_path, 50, 1000.0)
    (path / RUN_NAME).write_text(json.dumps({"format": 1, "run_id": OLD, "saved_at": saved_at}))
    save(tmp_path, 10, NEW)
    assert find_latest_checkpoint(tmp_path) == tmp_path / "checkpoint-10"


def test_going_on_is_the_same_run_and_going_back_a_new_one(tmp_path: Path, capsys: pytest.CaptureFixture):
    for step in (10, 20, 30):
        save(tmp_path, step, OLD)
    save(tmp_path, 40, NEW)
    assert choose_run_id(tmp_path / "checkpoint-30") == OLD
    assert capsys.readouterr().err == ""
    assert choose_run_id(tmp_path / "checkpoint-10") not in (OLD, NEW)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("Later checkpoints are kept: checkpoint-20, checkpoint-30")
    (tmp_path / "checkpoint-30" / "model.safetensors").write_text("")
    assert choose_run_id(tmp_path / "checkpoint-20") == OLD, "a damaged one is no reason for a new run"
    (tmp_path / "link").symlink_to(tmp_path / "checkpoint-10")
    assert choose_run_id(tmp_path / "link") not in (OLD, NEW)


def test_going_on_from_what_is_nobodys_is_a_new_run(tmp_path: Path):
    path = by_transformers(tmp_path, 10, 1000.0)
    first, second = choose_run_id(path), choose_run_id(path)
    assert first != second


# ---- beside transformers -------------------------------------------------------------------------------------------


def test_transformers_neither_sees_nor_deletes_what_was_moved_aside(tmp_path: Path):
    pytest.importorskip("transformers")
    from transformers import trainer_utils

    for step, run in ((2, OLD), (2, NEW), (4, NEW)):
        save(tmp_path, step, run)
    kept = tmp_path / f"run-{OLD}" / "checkpoint-2"
    before = hashes(kept)
    assert trainer_utils.get_last_checkpoint(str(tmp_path)) == str(tmp_path / "checkpoint-4")
    trainer_utils.rotate_checkpoints(str(tmp_path), 1, None)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-4", f"run-{OLD}"]
    assert hashes(kept) == before
    assert trainer_utils.get_last_checkpoint(str(kept.parent)) == str(kept)
