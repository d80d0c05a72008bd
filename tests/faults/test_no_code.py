"""A pickle that would run code is never unpickled, whatever it is called and whoever opens the checkpoint."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ostinato.checkpoint.atomic import atomic_directory
from ostinato.checkpoint.transformers.convert import convert
from ostinato.checkpoint.verify import verify_run
from ostinato.cli import main
from ostinato.core.errors import CheckpointError, OstinatoError
from tests.support import tiny
from tests.support.apis import Api, guest

FULL = int(os.environ.get("OSTINATO_KILLS", "0")) >= 50  # every kind of pickle under every name, not one of them
BASE: dict[str, Any] = dict(per_device_train_batch_size=4, max_steps=2, save_strategy="steps", save_steps=2)

NAMES = (
    "model.safetensors",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "pytorch_model-00001-of-00001.bin",
    "model.safetensors.index.json",
    "optimizer.pt",
    "optimizer.json",
    "optimizer.safetensors",
    "scheduler.pt",
    "scheduler.json",
    "scaler.pt",
    "scaler.json",
    "rng_state.pth",
    "rng_state_0.pth",
    "rng-0.json",
    "rng-0.safetensors",
    "loop.json",
    "loop.safetensors",
    "trainer_state.json",
    "training_args.bin",
    "training_args.json",
    "run.json",
    "MANIFEST.json",
    "config.json",
    "generation_config.json",
    "ostinato.json",
    "ostinato.safetensors",
    "data.pkl",
    "callbacks.bin",
    "anything at all",
)


class Evil:
    """What unpickles it makes a directory."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.mark,)


def plain(evil: Evil) -> bytes:
    return pickle.dumps(evil)


def by_torch(evil: Evil) -> bytes:
    file = io.BytesIO()
    torch.save({"state": {0: evil}, "param_groups": [{"params": [0], "lr": evil}], "cpu": evil, "weight": evil}, file)
    return file.getvalue()


def by_old_torch(evil: Evil) -> bytes:
    file = io.BytesIO()
    torch.save({"state": evil}, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


KINDS = (by_torch, plain, by_old_torch)


def build(folder: Path, api: str = "ostinato", **rest: Any) -> Any:
    library = Api(api, folder)
    library.set_seed(42)
    return library.trainer(tiny.regression(), library.args(**{**BASE, **rest}), train_dataset=tiny.regression_rows(8))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of ours, one of ours in both layouts, one of transformers'."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("checkpoints")
    build(folder / "ours").train()
    build(folder / "both", checkpoint_layout="transformers").train()
    with guest("transformers"):
        build(folder / "theirs", api="transformers").train()
    return {name: folder / name / "checkpoint-2" for name in ("ours", "both", "theirs")}


def poisoned(source: Path, target: Path, name: str, content: bytes, *, agrees: bool) -> Path:
    """A copy with one file replaced or added; the manifest agrees with it, as an attacker's would, or does not."""
    if not agrees or name == "MANIFEST.json" or not (source / "MANIFEST.json").exists():
        shutil.copytree(source, target)
        (target / name).write_bytes(content)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(target) as scratch:
        for path in source.iterdir():
            if path.name != "MANIFEST.json":
                shutil.copy(path, scratch / path.name)
        (scratch / name).write_bytes(content)
    return target


def attempts(home: Path) -> dict[str, Callable[[], Any]]:
    """Everything that opens a checkpoint."""
    checkpoint = home / "checkpoint-2"
    return {
        "verify": lambda: verify_run(home),
        "verify on the command line": lambda: main(["verify", str(checkpoint)]),
        "resume": lambda: build(home).train(resume_from_checkpoint=str(checkpoint)),
        "resume the newest": lambda: build(home).train(resume_from_checkpoint=True),
        "fork": lambda: build(home / "fork").train(
            resume_from_checkpoint=str(checkpoint), resume_mode="fork_with_optimizer"
        ),
        "convert to ours": lambda: convert(checkpoint, home / "o" / "checkpoint-2", to="ostinato"),
        "convert to theirs": lambda: convert(checkpoint, home / "t" / "checkpoint-2", to="transformers"),
    }


@pytest.mark.parametrize("layout", ["ours", "both", "theirs"])
@pytest.mark.parametrize("turn", range(3 if FULL else 1))
def test_no_pickle_is_ever_unpickled(turn: int, layout: str, checkpoints: Any, tmp_path: Path) -> None:
    mark = tmp_path / "the code ran"
    for number, name in enumerate(NAMES):
        content = KINDS[(number + turn) % len(KINDS)](Evil(mark))
        home = tmp_path / str(number)
        poisoned(checkpoints[layout], home / "checkpoint-2", name, content, agrees=True)
        for action, attempt in attempts(home).items():
            if not FULL and action == ("fork" if number % 2 else "resume the newest"):
                continue
            try:
                attempt()
            except OstinatoError as error:
                assert isinstance(error, CheckpointError), (name, action, error)
            assert not mark.exists(), f"{action} ran what {name} holds"
        shutil.rmtree(home)


def test_the_mark_works(tmp_path: Path) -> None:
    """The test above would notice."""
    for number, kind in enumerate(KINDS):
        mark = tmp_path / f"mark {number}"
        content = kind(Evil(mark))
        if kind is plain:
            pickle.loads(content)
        else:
            torch.load(io.BytesIO(content), weights_only=False)
        assert mark.is_dir()


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_what_is_needed_and_would_run_code_is_an_error_that_names_it(
    name: str, checkpoints: Any, tmp_path: Path
) -> None:
    content = by_torch(Evil(tmp_path / "mark"))
    path = poisoned(checkpoints["theirs"], tmp_path / "checkpoint-2", name, content, agrees=True)
    with pytest.raises(CheckpointError, match=name) as refusal:
        build(tmp_path, max_steps=4).train(resume_from_checkpoint=str(path))
    assert "reading that would run code, so it is not read" in refusal.value.why


def test_pretrained_models_neither(tmp_path: Path) -> None:
    """transformers' own reading of weights is used for models of its own: not of pickles."""
    pytest.importorskip("transformers")
    mark = tmp_path / "the code ran"
    with guest("transformers"):
        api = Api("ostinato", tmp_path / "a")

        def trainer(folder: Path) -> Any:
            args = Api("ostinato", folder).args(**BASE)
            return api.trainer(tiny.bert(), args, train_dataset=tiny.classification_rows(8))

        trainer(tmp_path / "a").train()
        for kind in (plain, by_torch):
            for name in ("pytorch_model.bin", "model.safetensors", "config.json", "adapter_model.bin"):
                home = tmp_path / f"{kind.__name__} {name}"
                source = tmp_path / "a" / "checkpoint-2"
                poisoned(source, home / "checkpoint-2", name, kind(Evil(mark)), agrees=True)
                if name == "pytorch_model.bin":
                    (home / "checkpoint-2" / "model.safetensors").unlink()
                for mode in ("resume", "fork"):
                    try:
                        trainer(home).train(resume_from_checkpoint=str(home / "checkpoint-2"), resume_mode=mode)
                    except OstinatoError as error:
                        assert isinstance(error, CheckpointError), error
                    assert not mark.exists(), f"{mode} ran what {name} holds"
