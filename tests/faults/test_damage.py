"""Whatever happens to a file of the newest checkpoint, it is noticed, and the one before is taken."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato.checkpoint.atomic import find_damage
from ostinato.checkpoint.identity import read_run_id
from ostinato.checkpoint.verify import check_checkpoint
from ostinato.core.errors import CheckpointError
from tests.support import tiny
from tests.support.apis import Api

EVERY_BIT = int(os.environ.get("OSTINATO_KILLS", "0")) >= 50  # of the manifest: takes a minute
BASE: dict[str, Any] = dict(
    per_device_train_batch_size=4,
    max_steps=5,
    save_strategy="steps",
    save_steps=2,
    logging_steps=3,
    learning_rate=1e-2,
)


def build(folder: Path, **rest: Any) -> Any:
    api = Api("ostinato", folder)
    api.set_seed(42)
    return api.trainer(
        tiny.regression(dropout=0.3), api.args(**{**BASE, **rest}), train_dataset=tiny.regression_rows()
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("whole")
    trainer = build(folder, save_strategy="steps", max_steps=5)
    trainer.train()
    shutil.rmtree(folder / "checkpoint-5", ignore_errors=True)
    return folder, trainer


# ---- damage --------------------------------------------------------------------------------------------------------


def truncated(file: Path, older: Path) -> bool:
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    return bool(content)


def halved(file: Path, older: Path) -> bool:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    return len(content) > 1


def emptied(file: Path, older: Path) -> bool:
    file.write_bytes(b"")
    return True


def removed(file: Path, older: Path) -> bool:
    file.unlink()
    return True


def swapped_with_an_older_one(file: Path, older: Path) -> bool:
    before = file.read_bytes()
    file.write_bytes(older.read_bytes())
    return before != file.read_bytes()


def flipped(file: Path, place: Callable[[int], int]) -> bool:
    content = bytearray(file.read_bytes())
    bit = place(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)
    return True


def first_bit(file: Path, older: Path) -> bool:
    return flipped(file, lambda bits: 0)


def last_bit(file: Path, older: Path) -> bool:
    return flipped(file, lambda bits: bits - 1)


def any_bit(file: Path, older: Path) -> bool:
    return flipped(file, random.Random(file.name).randrange)


DAMAGE = (truncated, halved, emptied, removed, swapped_with_an_older_one, first_bit, last_bit, any_bit)


def damaged(folder: Path, whole: Path, damage: Callable[[Path, Path], bool]) -> Iterator[tuple[Path, str]]:
    """A copy of the run for each file of its newest checkpoint, with that file damaged."""
    for name in sorted(path.name for path in (whole / "checkpoint-4").iterdir()):
        home = folder / name
        for checkpoint in ("checkpoint-2", "checkpoint-4"):
            shutil.copytree(whole / checkpoint, home / checkpoint)
        if damage(home / "checkpoint-4" / name, home / "checkpoint-2" / name):
            yield home, name


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_checkpoint_before_is_taken_and_one_line_says_why(
    damage: Any, whole: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    original, unbroken = whole
    names = []
    for home, name in damaged(tmp_path, original, damage):
        resumed = build(home)
        capsys.readouterr()
        resumed.train(resume_from_checkpoint=True)
        said = capsys.readouterr().err.splitlines()
        moved = [line for line in said if "belongs to another run and is moved to" in line]
        assert not moved or name == "run.json", "who cannot say whose it is is nobody's, and never deleted"
        about = [line for line in said if "checkpoint-4" in line and line not in moved]
        assert len(about) == 1, said
        assert about[0].startswith(f"ostinato: {home}/checkpoint-4 is skipped: ") and name in about[0], said
        assert f"ostinato: resuming from {home}/checkpoint-2: step 2 of 5" in said
        for key, weight in unbroken.model.state_dict().items():
            assert torch.equal(weight, resumed.model.state_dict()[key]), (name, key)
        owner = read_run_id(home / "checkpoint-2")
        assert check_checkpoint(home / "checkpoint-4").is_whole and read_run_id(home / "checkpoint-4") == owner, (
            "made anew"
        )
        names.append(name)
    expected = {"MANIFEST.json", "model.safetensors", "optimizer.safetensors", "loop.json", "trainer_state.json"}
    assert expected <= set(names)
    if damage is not swapped_with_an_older_one:
        assert len(names) == len(list((original / "checkpoint-4").iterdir())) >= 12


@pytest.mark.parametrize("damage", [truncated, removed, any_bit])
def test_a_damaged_checkpoint_that_is_named_is_an_error_that_names_the_file(
    damage: Any, whole: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for home, name in damaged(tmp_path, whole[0], damage):
        trainer = build(home)
        before = trainer.model.state_dict()["outer.bias"].clone()
        try:
            trainer.train(resume_from_checkpoint=str(home / "checkpoint-4"))
        except CheckpointError as error:
            assert name in str(error) and error.fix, (name, error)
            assert torch.equal(trainer.model.state_dict()["outer.bias"], before)
        else:  # a state that still is one is taken for one that was edited, which is said
            assert name == "trainer_state.json" and "trainer_state.json" in capsys.readouterr().err, name


def test_any_bit_of_the_manifest(whole: tuple[Path, Any], tmp_path: Path) -> None:
    """What all the others are compared with is not compared with anything but itself."""
    checkpoint = tmp_path / "checkpoint-4"
    shutil.copytree(whole[0] / "checkpoint-4", checkpoint)
    manifest = checkpoint / "MANIFEST.json"
    content = manifest.read_bytes()
    for bit in range(0, 8 * len(content), 1 if EVERY_BIT else 41):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        manifest.write_bytes(changed)
        with pytest.raises(CheckpointError):
            raise_if_damaged(checkpoint)
    manifest.write_bytes(content)
    raise_if_damaged(checkpoint)


def raise_if_damaged(checkpoint: Path) -> None:
    next(find_damage(checkpoint, contents=False), None)


# ---- nothing left --------------------------------------------------------------------------------------------------


def test_if_all_are_damaged_all_are_named_and_nothing_starts_afresh(whole: tuple[Path, Any], tmp_path: Path) -> None:
    for name, file in (("checkpoint-2", "optimizer.safetensors"), ("checkpoint-4", "model.safetensors")):
        shutil.copytree(whole[0] / name, tmp_path / name)
        any_bit(tmp_path / name / file, tmp_path)
    with pytest.raises(CheckpointError, match="No valid checkpoint found in output directory") as refusal:
        build(tmp_path).train(resume_from_checkpoint=True)
    assert "checkpoint-4: model.safetensors is altered" in refusal.value.why
    assert "checkpoint-2: optimizer.safetensors is altered" in refusal.value.why


@pytest.mark.parametrize("damage", [truncated, any_bit])
def test_an_older_run_is_not_taken_for_a_damaged_newer_one(damage: Any, tmp_path: Path) -> None:
    build(tmp_path, max_steps=4).train()
    build(tmp_path, max_steps=2, learning_rate=2e-2).train()
    damage(tmp_path / "checkpoint-2" / "model.safetensors", tmp_path)
    with pytest.raises(CheckpointError, match="No valid checkpoint") as refusal:
        build(tmp_path).train(resume_from_checkpoint=True)
    assert "checkpoint-2: model.safetensors is" in refusal.value.why


def test_a_directory_that_never_became_a_checkpoint_is_passed_over(
    whole: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """As transformers leaves it when it is killed while it saves."""
    shutil.copytree(whole[0] / "checkpoint-4", tmp_path / "checkpoint-4")
    (tmp_path / "checkpoint-6").mkdir()
    (tmp_path / "checkpoint-6" / "model.safetensors").write_bytes(b"half")
    capsys.readouterr()
    build(tmp_path).train(resume_from_checkpoint=True)
    said = capsys.readouterr().err
    assert said.count("checkpoint-6 ") == 1
    assert "checkpoint-6 is left out: it has neither MANIFEST.json nor trainer_state.json" in said
    assert "checkpoint-4: step 4 of 5" in said


def test_several_damaged_ones_in_a_row(whole: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    build(tmp_path, save_steps=1).train()
    shutil.rmtree(tmp_path / "checkpoint-5")
    any_bit(tmp_path / "checkpoint-4" / "rng-0.safetensors", tmp_path)
    emptied(tmp_path / "checkpoint-3" / "scheduler.json", tmp_path)
    capsys.readouterr()
    resumed = build(tmp_path, save_steps=1)
    resumed.train(resume_from_checkpoint=True)
    said = capsys.readouterr().err
    assert said.count("is skipped") == 2 and "checkpoint-2: step 2 of 5" in said
    for key, weight in whole[1].model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[key]), key
