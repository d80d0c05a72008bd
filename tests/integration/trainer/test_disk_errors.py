"""A disk that does not take a checkpoint: said plainly, the one before intact, training goes on or ends as asked."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import ostinato
from ostinato.checkpoint.atomic import verify
from ostinato.checkpoint.disk import Disk, DiskError, Sealed, using
from ostinato.checkpoint.retention import list_checkpoints
from ostinato.core.errors import CheckpointError
from tests.support import tiny
from tests.support.quiet_trainer import build_quiet_trainer
from tests.support.records import assert_same
from tests.support.run_files import listed

ROWS = tiny.regression_rows(48)


class Failing(Disk):
    """Does not take what is written for certain directories."""

    def __init__(self, *names: str, code: int = errno.ENOSPC, at: str = "write", kind: Any = OSError) -> None:
        self.names, self.code, self.at, self.kind = names, code, at, kind
        self.failed = 0

    def _check(self, path: Path, at: str) -> None:
        if at == self.at and any(f".{name}.partial" in str(path) for name in self.names):
            self.failed += 1
            raise self.kind(self.code, os.strerror(self.code))

    def write(self, path: Path, content: Any, *, direct: bool = False) -> Sealed:
        self._check(path, "write")
        return super().write(path, content, direct=direct)

    def seal(self, path: Path, descriptor: int) -> Sealed:
        self._check(path, "seal")
        return super().seal(path, descriptor)

    def make_directory(self, path: Path) -> None:
        self._check(path, "make_directory")
        super().make_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self._check(source, "rename")
        super().rename(source, target)


class Events(ostinato.TrainerCallback):
    """Which saves were told of."""

    def __init__(self) -> None:
        self.saved: list[int] = []
        self.ended = False

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.saved.append(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ended = True


class OwnOptimizer(ostinato.Trainer):
    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)


WAYS = {"later": {}, "now": {"callbacks": [Events]}, "hooks": {"cls": OwnOptimizer}}


def build(out: Path, *, cls: Any = None, callbacks: Any = (), **more: Any) -> Any:
    return build_quiet_trainer(
        out,
        tiny.regression(dropout=0.2),
        cls=cls or ostinato.Trainer,
        train_dataset=ROWS,
        eval_dataset=ROWS[:4],
        callbacks=list(callbacks),
        **{**dict(per_device_train_batch_size=4, max_steps=8, save_steps=2, learning_rate=1e-2), **more},
    )


def left(out: Path) -> list[str]:
    for path in list_checkpoints(out):
        verify(path)
    return listed(out)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", ["write", "seal", "make_directory", "rename"])
def test_training_goes_on_and_the_next_save_is_tried(tmp_path: Path, capsys: Any, way: str, at: str):
    with using(Failing("checkpoint-4", at=at)):
        trainer = build(tmp_path, **WAYS[way])
        trainer.train()
    assert left(tmp_path) == ["checkpoint-2", "checkpoint-6", "checkpoint-8"]
    said = capsys.readouterr().err
    assert said.count("was not saved") == 1
    assert f"{tmp_path}/checkpoint-4 was not saved: the disk of {tmp_path} is full" in said
    assert "takes about" in said
    assert "are free" in said
    assert f"{tmp_path}/checkpoint-2 is intact" in said
    plain = build(tmp_path / "plain", save_strategy="no")
    plain.train()
    assert_same(trainer.model.state_dict(), plain.model.state_dict())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES])
def test_what_the_disk_said_is_passed_on(tmp_path: Path, capsys: Any, code: int):
    with using(Failing("checkpoint-4", code=code)):
        build(tmp_path).train()
    words = {errno.ENOSPC: "is full", errno.EIO: "Input/output", errno.EROFS: "is read-only", errno.EACCES: "denied"}
    assert words[code] in capsys.readouterr().err
    assert left(tmp_path) == ["checkpoint-2", "checkpoint-6", "checkpoint-8"]


@pytest.mark.parametrize("way", WAYS)
def test_if_asked_to_it_ends_the_run(tmp_path: Path, way: str):
    with using(Failing("checkpoint-4")), pytest.raises(DiskError, match=r"checkpoint-4 was not saved") as caught:
        build(tmp_path, save_errors="raise", **WAYS[way]).train()
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == errno.ENOSPC
    assert left(tmp_path) == ["checkpoint-2"]


@pytest.mark.parametrize("way", WAYS)
def test_a_last_save_that_fails_is_an_error_in_the_end(tmp_path: Path, way: str):
    trainer = build(tmp_path, **WAYS[way])
    with using(Failing("checkpoint-8")), pytest.raises(CheckpointError, match=r"training is done, but .*checkpoint-8"):
        trainer.train()
    assert left(tmp_path) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert trainer.state.global_step == 8
    trainer.save_model(str(tmp_path / "elsewhere"))
    assert (tmp_path / "elsewhere" / "model.safetensors").exists()


def test_nobody_is_told_of_a_save_that_failed(tmp_path: Path):
    events = Events()
    with using(Failing("checkpoint-4")):
        build(tmp_path, callbacks=[events]).train()
    assert events.saved == [2, 6, 8]
    assert events.ended


@pytest.mark.parametrize("way", WAYS)
def test_a_mistake_that_is_not_the_disks_is_raised(tmp_path: Path, way: str):
    mistaken = Failing("checkpoint-4", kind=lambda *_: ZeroDivisionError("a mistake"), at="seal")
    with using(mistaken), pytest.raises(ZeroDivisionError, match="a mistake"):
        build(tmp_path, **WAYS[way]).train()
    assert left(tmp_path) == ["checkpoint-2"]


def test_what_cannot_be_saved_is_raised_in_the_step_it_belongs_to(tmp_path: Path):
    trainer = build(tmp_path)

    class Stuck(ostinato.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 4:
                trainer.lr_scheduler.leftover = lambda: None

    trainer.add_callback(Stuck())
    with pytest.raises(CheckpointError, match="leftover"):
        trainer.train()
    assert trainer.state.global_step == 4
    assert left(tmp_path) == ["checkpoint-2"]


# ------------------------------------------------------------------------------------------------------ the best model


def step_in(directory: Path) -> int | None:
    state = directory / "trainer_state.json"  # the directory is tried out before the first save
    return json.loads(state.read_text())["global_step"] if state.exists() else None


def scored(trainer: Any, scores: list[float]) -> dict[int, dict[str, torch.Tensor]]:
    kept, following = {}, iter(scores)

    def compute(prediction: Any) -> dict[str, float]:
        kept[trainer.state.global_step] = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        return {"score": next(following)}

    trainer.compute_metrics = compute
    return kept


BEST = dict(
    eval_strategy="steps", eval_steps=2, metric_for_best_model="score", greater_is_better=True,
    load_best_model_at_end=True,
)  # fmt: skip


@pytest.mark.parametrize("way", ["later", "hooks"])
@pytest.mark.parametrize("saves", [dict(save_strategy="no"), dict(save_strategy="best")], ids=str)
def test_a_best_model_that_could_not_be_kept_is_an_error_in_the_end(
    tmp_path: Path, capsys: Any, way: str, saves: dict[str, Any]
):
    trainer = build(tmp_path, **BEST, **saves, **WAYS[way])
    kept = scored(trainer, [1.0, 2.0, 5.0, 3.0])
    written = []

    class Once(Failing):
        def write(self, path: Path, content: Any, *, direct: bool = False) -> Sealed:
            if step_in(path.parent) == 6:
                written.append(path)
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(path, content, direct=direct)

    with using(Once()), pytest.raises(CheckpointError, match="training is done, but"):
        trainer.train()
    assert written
    assert "of step 4" in capsys.readouterr().err
    assert_same(trainer.model.state_dict(), kept[4])
    verify(Path(trainer.state.best_model_checkpoint))


@pytest.mark.parametrize("way", ["later", "hooks"])
def test_one_that_is_kept_later_makes_up_for_it(tmp_path: Path, way: str):
    trainer = build(tmp_path, **BEST, save_strategy="no", **WAYS[way])
    kept = scored(trainer, [1.0, 2.0, 5.0, 6.0])

    class Once(Disk):
        def write(self, path: Path, content: Any, *, direct: bool = False) -> Sealed:
            if step_in(path.parent) == 4:
                raise OSError(errno.EIO, "Input/output error")
            return super().write(path, content, direct=direct)

    with using(Once()):
        trainer.train()
    assert_same(trainer.model.state_dict(), kept[8])


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_that_is_not_there_is_not_the_best(tmp_path: Path, way: str):
    """Steps 4 and 8 end an epoch; they are saved first, and evaluated then."""
    epochs = dict(eval_strategy="epoch", load_best_model_at_end=False, save_steps=4, save_total_limit=1)
    trainer = build(tmp_path, **{**BEST, **epochs}, **WAYS[way])
    trainer.train_dataset = ROWS[:16]
    scored(trainer, [1.0, 2.0])
    with using(Failing("checkpoint-8")), pytest.raises(CheckpointError, match="checkpoint-8"):
        trainer.train()
    assert trainer.state.best_global_step == 8
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-4")
    verify(tmp_path / "checkpoint-4")
