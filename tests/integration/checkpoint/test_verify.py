"""Verdicts on checkpoints: ours against their manifest, those of transformers by whether they can be read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ostinato.checkpoint.verify import check_checkpoint, verify_run
from ostinato.core.errors import CheckpointError
from tests.support import tiny
from tests.support.apis import Api, guest

BASE: dict[str, Any] = dict(per_device_train_batch_size=4, max_steps=4, save_strategy="steps", save_steps=2)


def train(folder: Path, api: str = "ostinato", **rest: Any) -> Any:
    library = Api(api, folder)
    trainer = library.trainer(
        tiny.regression(),
        library.args(**{**BASE, **rest}),
        train_dataset=tiny.regression_rows(8),
        eval_dataset=tiny.regression_rows(4),
    )
    trainer.train()
    return trainer


@pytest.fixture(scope="module")
def ours_(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ours")
    train(folder)
    return folder


@pytest.fixture(scope="module")
def theirs_(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("theirs")
    with guest("transformers"):
        train(folder, "transformers")
    return folder


def flip(path: Path, place: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_whole(ours_: Path) -> None:
    verdicts = verify_run(ours_)
    assert [(one.path.name, one.step, one.remark, one.is_whole) for one in verdicts] == [
        ("checkpoint-2", 2, "whole", True),
        ("checkpoint-4", 4, "whole", True),
    ]
    size = sum(path.stat().st_size for path in (ours_ / "checkpoint-2").iterdir())
    assert verdicts[0].size == size
    assert verify_run(ours_ / "checkpoint-4") == [verdicts[1]]


def test_every_damaged_file_is_listed(ours_: Path, tmp_path: Path) -> None:
    shutil.copytree(ours_ / "checkpoint-2", tmp_path / "checkpoint-2")
    flip(tmp_path / "checkpoint-2" / "model.safetensors")
    (tmp_path / "checkpoint-2" / "loop.json").unlink()
    verdict = check_checkpoint(tmp_path / "checkpoint-2")
    assert {one.file: one.why for one in verdict.damage} == {
        "loop.json": "loop.json is missing",
        "model.safetensors": "model.safetensors is altered: its contents do not match the hash in MANIFEST.json",
    }
    assert not verdict.is_whole and verdict.has_trusted_owner
    flip(tmp_path / "checkpoint-2" / "run.json")
    assert not check_checkpoint(tmp_path / "checkpoint-2").has_trusted_owner


def test_a_manifest_that_cannot_be_believed(ours_: Path, tmp_path: Path) -> None:
    shutil.copytree(ours_ / "checkpoint-2", tmp_path / "checkpoint-2")
    flip(tmp_path / "checkpoint-2" / "MANIFEST.json", 40)
    (one,) = check_checkpoint(tmp_path / "checkpoint-2").damage
    assert one.file == "MANIFEST.json"
    (tmp_path / "checkpoint-2" / "MANIFEST.json").unlink()
    verdict = check_checkpoint(tmp_path / "checkpoint-2")
    assert str(verdict) == "MANIFEST.json is missing" and not verdict.has_trusted_owner


def test_all_of_a_run_also_what_was_moved_aside_and_the_best(tmp_path: Path) -> None:
    best = dict(eval_strategy="steps", eval_steps=1, load_best_model_at_end=True, save_steps=3, max_steps=3)
    train(tmp_path, **best)
    train(tmp_path, **best, learning_rate=1e-3)
    names = [str(verdict.path.relative_to(tmp_path)) for verdict in verify_run(tmp_path)]
    (aside,) = (path.name for path in tmp_path.iterdir() if path.name.startswith("run-"))
    assert f"{aside}/checkpoint-3" in names and "checkpoint-3" in names
    assert all(verdict.is_whole for verdict in verify_run(tmp_path))
    (tmp_path / "best-model").mkdir(exist_ok=True)
    names = [verdict.path.name for verdict in verify_run(tmp_path)]
    assert "best-model" in names


def test_weights_alone(tmp_path: Path) -> None:
    train(tmp_path, save_only_model=True)
    assert [str(verdict) for verdict in verify_run(tmp_path)] == ["whole; weights only"] * 2


def test_what_transformers_wrote(theirs_: Path) -> None:
    verdicts = verify_run(theirs_)
    assert [(one.step, str(one), one.is_whole) for one in verdicts] == [
        (2, "no checksums; files readable", True),
        (4, "no checksums; files readable", True),
    ]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def flip_middle(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


DAMAGE_TO_THEIRS = {
    "weights cut short": ("model.safetensors", cut),
    "a header altered": ("model.safetensors", lambda path: flip(path, 9)),
    "a state cut short": ("trainer_state.json", cut),
    "an optimizer cut short": ("optimizer.pt", cut),
    "an optimizer altered": ("optimizer.pt", flip_middle),
    "streams altered": ("rng_state.pth", flip_middle),
    "no schedule": ("scheduler.pt", Path.unlink),
    "no weights": ("model.safetensors", Path.unlink),
}


@pytest.mark.parametrize("case", DAMAGE_TO_THEIRS)
def test_damage_to_what_transformers_wrote(case: str, theirs_: Path, tmp_path: Path) -> None:
    name, damage = DAMAGE_TO_THEIRS[case]
    shutil.copytree(theirs_ / "checkpoint-4", tmp_path / "checkpoint-4")
    damage(tmp_path / "checkpoint-4" / name)
    (one,) = check_checkpoint(tmp_path / "checkpoint-4").damage
    assert one.file == name and name in one.why


def test_a_shard_that_is_missing(theirs_: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint-4"
    shutil.copytree(theirs_ / "checkpoint-4", checkpoint)
    (checkpoint / "model.safetensors").rename(checkpoint / "model-00001-of-00002.safetensors")
    table = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    assert [one.why for one in check_checkpoint(checkpoint).damage] == ["model-00002-of-00002.safetensors is missing"]


def test_a_damaged_one_of_theirs_gives_way_to_the_one_before(theirs_: Path, tmp_path: Path, capsys: Any) -> None:
    for name in ("checkpoint-2", "checkpoint-4"):
        shutil.copytree(theirs_ / name, tmp_path / name)
    cut(tmp_path / "checkpoint-4" / "optimizer.pt")
    library = Api("ostinato", tmp_path)
    trainer = library.trainer(tiny.regression(), library.args(**BASE), train_dataset=tiny.regression_rows(8))
    capsys.readouterr()
    trainer.train(resume_from_checkpoint=True)
    said = capsys.readouterr().err
    assert f"{tmp_path}/checkpoint-4 is skipped: optimizer.pt is not a file that torch saved, or damaged" in said
    assert "checkpoint-2: step 2 of 4" in said


def test_nothing_to_verify(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is nothing to verify"):
        verify_run(tmp_path)
    with pytest.raises(CheckpointError, match="not a directory"):
        verify_run(tmp_path / "not there")


def test_links_are_not_followed(theirs_: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint-4"
    shutil.copytree(theirs_ / "checkpoint-4", checkpoint)
    (checkpoint / "model.safetensors").rename(tmp_path / "elsewhere")
    (checkpoint / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    (one,) = check_checkpoint(checkpoint).damage
    assert one.file == "model.safetensors"
