"""Which checkpoints are found, and which ones go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ostinato.checkpoint import retention
from ostinato.checkpoint.atomic import atomic_directory
from ostinato.checkpoint.disk import Disk, using
from ostinato.checkpoint.retention import get_last_checkpoint, list_checkpoints, rotate, sort_checkpoints
from ostinato.core.notices import forget_notices


def write(out: Path, *steps: int) -> list[Path]:
    for step in steps:
        with atomic_directory(out / f"checkpoint-{step}") as scratch:
            (scratch / "trainer_state.json").write_text("{}")
    return [out / f"checkpoint-{step}" for step in steps]


def steps(out: Path) -> list[int]:
    return sorted(int(name.split("-")[1]) for name in os.listdir(out) if name.startswith("checkpoint-"))


def test_checkpoints_are_ordered_by_step(tmp_path: Path):
    write(tmp_path, 100, 9, 20)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["checkpoint-9", "checkpoint-20", "checkpoint-100"]
    assert get_last_checkpoint(str(tmp_path)) == str(tmp_path / "checkpoint-100")


def test_only_whole_checkpoints_are_found_and_the_others_named_once(tmp_path: Path, capsys: pytest.CaptureFixture):
    forget_notices()
    write(tmp_path, 10, 20)
    (tmp_path / "checkpoint-20" / "trainer_state.json").write_text("")
    (tmp_path / "checkpoint-30").mkdir()
    (tmp_path / "checkpoint-40").write_text("a file")
    for name in ("checkpoint-x", "checkpoint-5-best", "my-checkpoint-50", ".checkpoint-60.partial", "checkpoint"):
        (tmp_path / name).mkdir()
    for _ in range(2):
        assert get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "checkpoint-20 is left out: trainer_state.json is truncated" in said[0]
    assert "checkpoint-30 is left out" in said[1]


def test_where_none_is_ours_every_shape_counts(tmp_path: Path):
    for step in (9, 10, 20, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "weights.bin").write_text("of another library")
    assert get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-100")
    assert list_checkpoints(tmp_path) == []
    assert [path.name for path in rotate(tmp_path, 2)] == ["checkpoint-9", "checkpoint-10"]
    write(tmp_path, 15)
    assert get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-15"), "the others are leftovers now"
    assert rotate(tmp_path, 1) == []


def test_there_may_be_none(tmp_path: Path):
    assert sort_checkpoints(tmp_path / "not there") == []
    assert get_last_checkpoint(tmp_path) is None
    with pytest.raises(FileNotFoundError):
        get_last_checkpoint(tmp_path / "not there")


def test_the_oldest_go(tmp_path: Path):
    paths = write(tmp_path, 9, 10, 20, 100)
    assert rotate(tmp_path, 2) == paths[:2]
    assert steps(tmp_path) == [20, 100]
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize("limit", [None, 0, -1, 4, 9])
def test_nothing_goes_below_the_limit(tmp_path: Path, limit: int | None):
    write(tmp_path, 1, 2, 3, 4)
    assert rotate(tmp_path, limit) == []
    assert steps(tmp_path) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("limit", "kept", "left"),
    [
        (1, 1, [1, 4]),  # one more than asked for: best and newest both stay
        (2, 1, [1, 4]),
        (3, 1, [1, 3, 4]),
        (1, 4, [4]),
        (2, 3, [3, 4]),
    ],
)
def test_the_kept_and_the_newest_stay(tmp_path: Path, limit: int, kept: int, left: list[int]):
    write(tmp_path, 1, 2, 3, 4)
    rotate(tmp_path, limit, keep=[tmp_path / f"checkpoint-{kept}"])
    assert steps(tmp_path) == left


def test_the_kept_may_be_written_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "out", 1, 2, 3)
    monkeypatch.chdir(tmp_path)
    rotate("out", 1, keep=["./out/../out/checkpoint-1"])
    assert steps(tmp_path / "out") == [1, 3]


def test_a_damaged_checkpoint_neither_counts_nor_goes(tmp_path: Path):
    write(tmp_path, 1, 2, 3)
    (tmp_path / "checkpoint-3" / "trainer_state.json").unlink()
    rotate(tmp_path, 1)
    assert steps(tmp_path) == [2, 3], "the newest whole one must stay"


def test_a_link_goes_but_not_what_it_leads_to(tmp_path: Path):
    write(tmp_path / "elsewhere", 1)
    write(tmp_path / "out", 2)
    (tmp_path / "out" / "checkpoint-1").symlink_to(tmp_path / "elsewhere" / "checkpoint-1")
    rotate(tmp_path / "out", 1)
    assert steps(tmp_path / "out") == [2]
    assert steps(tmp_path / "elsewhere") == [1]


def test_a_checkpoint_that_cannot_be_deleted_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    write(tmp_path, 1, 2, 3)

    def refuse(path: Path) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(retention, "discard", refuse)
    assert rotate(tmp_path, 1) == []
    assert "could not delete" in capsys.readouterr().err


def test_a_deleted_checkpoint_loses_its_name_before_its_files(tmp_path: Path):
    write(tmp_path, 1, 2)
    seen: list[list[str]] = []

    class Watched(Disk):
        def remove(self, path: Path) -> None:
            if path.exists():
                seen.append(sorted(os.listdir(tmp_path)))
            super().remove(path)

    with using(Watched()):
        rotate(tmp_path, 1)
    assert seen == [[".checkpoint-1.trash", "checkpoint-2"]]


def test_sorting_puts_the_best_next_to_the_newest(tmp_path: Path):
    write(tmp_path, 1, 2, 3, 4)
    assert [Path(p).name[-1] for p in sort_checkpoints(tmp_path)] == ["1", "2", "3", "4"]
    for best, order in ((1, "2314"), (3, "1234"), (4, "1234"), (9, "1234")):
        paths = sort_checkpoints(tmp_path, best_model_checkpoint=str(tmp_path / f"checkpoint-{best}"))
        assert "".join(Path(p).name[-1] for p in paths) == order


def test_sorting_by_time_and_prefix(tmp_path: Path):
    for seconds, path in enumerate(write(tmp_path, 3, 1, 2)):
        os.utime(path, (seconds * 100, seconds * 100))
    assert [Path(p).name[-1] for p in sort_checkpoints(tmp_path, use_mtime=True)] == ["3", "1", "2"]
    (tmp_path / "checkpoint-1").rename(tmp_path / "other-7")
    assert sort_checkpoints(tmp_path, "other") == [str(tmp_path / "other-7")]


@pytest.mark.parametrize("best", [None, 1, 2, 3, 4])
@pytest.mark.parametrize("limit", [None, 1, 2, 3, 4])
def test_what_is_left_is_what_transformers_leaves(tmp_path: Path, best: int | None, limit: int | None):
    pytest.importorskip("transformers")
    from transformers import trainer_utils

    left = []
    for library in ("ours", "transformers"):
        out = tmp_path / library
        for step in (1, 2, 3, 4):  # as transformers writes them
            (out / f"checkpoint-{step}").mkdir(parents=True)
            (out / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
        kept = None if best is None else str(out / f"checkpoint-{best}")
        assert [Path(p).name for p in sort_checkpoints(str(out), best_model_checkpoint=kept)] == [
            Path(p).name for p in trainer_utils.sort_checkpoints(str(out), best_model_checkpoint=kept)
        ]
        assert get_last_checkpoint(str(out)) == trainer_utils.get_last_checkpoint(str(out))
        if library == "ours":
            rotate(out, limit, keep=[kept] if kept else [])
        else:
            trainer_utils.rotate_checkpoints(str(out), limit, kept)
        left.append(steps(out))
    assert left[0] == left[1]
