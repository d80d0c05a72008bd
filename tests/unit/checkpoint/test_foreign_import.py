"""Checkpoints in the layout of transformers: read without running code, strictly, and converted both ways."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import pickle
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ostinato.checkpoint import io as files
from ostinato.checkpoint import training_state, weights
from ostinato.checkpoint.atomic import atomic_directory, is_checkpoint, verify
from ostinato.checkpoint.tensors import read_tree, write_tree
from ostinato.checkpoint.training_state import load_training_parts, save_loop_state, save_random_state
from ostinato.checkpoint.transformers import read
from ostinato.checkpoint.transformers import write as exporter
from ostinato.checkpoint.transformers.convert import convert
from ostinato.checkpoint.transformers.detect import is_from_transformers
from ostinato.checkpoint.transformers.read import (
    build_foreign_loop_state,
    load_foreign_random_state,
    load_foreign_scaler,
    load_foreign_state,
    load_foreign_training_parts,
    load_foreign_weights,
)
from ostinato.checkpoint.transformers.unpickle import read_torch_file
from ostinato.core.errors import CheckpointError
from ostinato.core.notices import forget_notices
from ostinato.core.random import RandomState, preserve_rng

FILES = ("optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth", "pytorch_model.bin")


# ---------------------------------------------------------------------------------------------- a run, and its files


class Parts:
    """A model with its optimizer, schedule and scaler, a few steps into training."""

    def __init__(self, steps: int = 0, *, optimizer: Any = torch.optim.AdamW, width: int = 5) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, width), nn.Dropout(0.5), nn.Linear(width, 2))
        groups = [
            {"params": [p for p in self.model.parameters() if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in self.model.parameters() if p.ndim == 1], "weight_decay": 0.0},
        ]
        self.optimizer = optimizer(groups, lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (step + 1))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**7)
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        self.model(torch.randn(4, 3)).square().mean().backward()
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()

    def everything(self) -> bytes:
        """All state, bit for bit."""
        states = [self.model.state_dict(), self.optimizer.state_dict(), self.scheduler.state_dict()]
        return pickle.dumps(_comparable([*states, self.scaler.state_dict()]))

    def load(self, directory: Path) -> None:
        load_foreign_weights(self.model, directory)
        load_foreign_training_parts(directory, optimizer=self.optimizer, scheduler=self.scheduler, scaler=self.scaler)


def _comparable(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape), value.stride(), value.contiguous().numpy().tobytes())
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, dict):
        return {str(key): _comparable(item) for key, item in sorted(value.items(), key=lambda pair: str(pair[0]))}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(_comparable, value)]
    return value


STATE = {
    "epoch": 0.5,
    "global_step": 3,
    "max_steps": 12,
    "logging_steps": 2,
    "num_train_epochs": 2,
    "train_batch_size": 4,
    "total_flos": 7.0,
    "log_history": [{"loss": 2.5, "learning_rate": 0.1, "epoch": 0.33, "step": 2}, {"eval_loss": 1.0, "step": 2}],
    "stateful_callbacks": {"TrainerControl": {"args": {"should_save": True}, "attributes": {}}},
    "something_of_a_later_version": 1,
}


def write_theirs(directory: Path, parts: Parts, **state: Any) -> Path:
    """What transformers writes, file by file."""
    directory.mkdir(parents=True)
    save_file(parts.model.state_dict(), directory / "model.safetensors", metadata={"format": "pt"})
    torch.save(parts.optimizer.state_dict(), directory / "optimizer.pt")
    torch.save(parts.scheduler.state_dict(), directory / "scheduler.pt")
    torch.save(parts.scaler.state_dict(), directory / "scaler.pt")
    streams = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}
    torch.save(streams, directory / "rng_state.pth")
    (directory / "trainer_state.json").write_text(json.dumps({**STATE, **state}))
    (directory / "config.json").write_text("{}")
    return directory


def write_ours(directory: Path, parts: Parts, *, world_size: int = 1, both: bool = False) -> Path:
    """What our trainer writes."""
    loop = {
        "place": {"epoch": 0, "batch": 3, "stream": torch.get_rng_state(), "before_read": None},
        "pending_loss": torch.tensor(0.1),
        "total_loss": 1 / 3,
    }
    with atomic_directory(directory) as scratch:
        weights.save_model(parts.model, scratch)
        training_state.save_training_parts(scratch, optimizer=parts.optimizer, scheduler=parts.scheduler)
        write_tree(parts.scaler.state_dict(), scratch, "scaler")
        for rank in range(world_size):
            torch.rand(1)
            save_random_state(scratch, rank, world_size)
        (scratch / "trainer_state.json").write_text(json.dumps(STATE))
        (scratch / "training_args.json").write_text(json.dumps({"seed": 42, "optim": "adamw_torch", "lr": 0.1}))
        (scratch / "tokenizer").mkdir()
        (scratch / "tokenizer" / "vocabulary.txt").write_text("a b c")
        save_loop_state(scratch, loop)
        if both:
            exporter.export_training_parts(
                scratch, optimizer=parts.optimizer, scheduler=parts.scheduler, scaler=parts.scaler
            )
            exporter.export_random_state(scratch, 0, 1)
            exporter.export_training_args(scratch)
    return directory


def contents(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    forget_notices()
    with preserve_rng():
        random.seed(1)
        np.random.seed(2)
        yield


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return write_theirs(tmp_path / "theirs" / "checkpoint-3", Parts(3))


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    return write_ours(tmp_path / "ours" / "checkpoint-3", Parts(3))


def loads_of(directory: Path) -> dict[str, Callable[[], Any]]:
    """The function of the importer that opens a file."""
    parts = Parts()

    def both() -> None:
        load_foreign_training_parts(
            directory, optimizer=parts.optimizer, scheduler=parts.scheduler, scaler=parts.scaler
        )

    return {
        "optimizer.pt": both,
        "scheduler.pt": both,
        "scaler.pt": both,
        "rng_state.pth": lambda: load_foreign_random_state(directory, 0, 1),
        "pytorch_model.bin": lambda: load_foreign_weights(parts.model, directory),
        "trainer_state.json": lambda: load_foreign_state(directory),
        "model.safetensors": lambda: load_foreign_weights(parts.model, directory),
    }


def use_pickled_weights(directory: Path) -> None:
    """As older versions of transformers saved them."""
    torch.save(Parts(3).model.state_dict(), directory / "pytorch_model.bin")
    (directory / "model.safetensors").unlink()


# ------------------------------------------------------------------------------------------------------ what is read


def test_every_part_comes_back(theirs: Path) -> None:
    trained, fresh = Parts(3), Parts()
    assert fresh.everything() != trained.everything()
    fresh.load(theirs)
    assert fresh.everything() == trained.everything()


def test_parts_take_the_same_steps(theirs: Path) -> None:
    trained, fresh = Parts(3), Parts()
    fresh.load(theirs)
    for parts in (trained, fresh):
        torch.manual_seed(7)
        parts.step()
        parts.step()
    assert fresh.everything() == trained.everything()


def test_random_streams_come_back(tmp_path: Path) -> None:
    np.random.randn()  # half of a pair: the other half is part of the stream
    random.gauss(0, 1)
    before = RandomState.capture()
    directory = write_theirs(tmp_path / "checkpoint-3", Parts())
    torch.rand(3), random.random(), np.random.rand()
    before.restore()
    expected = (torch.rand(2).tolist(), random.gauss(0, 1), np.random.randn(3).tolist())
    torch.rand(3), random.random(), np.random.rand()
    write = {"python": before.python, "numpy": _legacy(before), "cpu": before.torch}
    torch.save(write, directory / "rng_state.pth")
    load_foreign_random_state(directory, 0, 1)
    assert (torch.rand(2).tolist(), random.gauss(0, 1), np.random.randn(3).tolist()) == expected


def _legacy(state: RandomState) -> tuple[Any, ...]:
    inner = state.numpy["state"]
    return ("MT19937", inner["key"], inner["pos"], state.numpy["has_gauss"], state.numpy["gauss"])


def test_streams_of_several_processes(theirs: Path) -> None:
    (theirs / "rng_state.pth").unlink()
    for rank in range(2):
        torch.manual_seed(rank)
        exporter.export_random_state(theirs, rank, 2)
    load_foreign_random_state(theirs, 1, 2)
    assert torch.equal(torch.rand(2), torch.rand(2, generator=torch.Generator().manual_seed(1)))
    with pytest.raises(CheckpointError, match="2 processes saved them, and this run has 1"):
        load_foreign_random_state(theirs, 0, 1)
    (theirs / "rng_state_0.pth").unlink()
    with pytest.raises(CheckpointError, match=r"rng_state"):
        load_foreign_random_state(theirs, 1, 2)


def test_streams_of_devices_that_are_not_here(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    streams = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}
    torch.save(
        {**streams, "cuda": torch.zeros(16, dtype=torch.uint8), "npu": torch.zeros(2)}, theirs / "rng_state.pth"
    )
    load_foreign_random_state(theirs, 0, 1)
    said = capsys.readouterr().err
    assert "1 CUDA streams were saved, 0 can be restored" in said
    assert "1 NPU streams were saved, 0 can be restored" in said


def test_the_arguments_are_not_read(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (theirs / "training_args.bin").write_bytes(b"whatever")
    state = load_foreign_state(theirs)
    assert (state.global_step, state.epoch, state.total_flos) == (3, 0.5, 7.0)
    assert state.stateful_callbacks == STATE["stateful_callbacks"]
    assert capsys.readouterr().err.count("training_args.bin") == 1


def test_the_best_model_moves_with_the_run(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def best(path: str) -> str | None:
        (theirs / "trainer_state.json").write_text(json.dumps({**STATE, "best_model_checkpoint": path}))
        return load_foreign_state(theirs).best_model_checkpoint

    (theirs.parent / "checkpoint-2").mkdir()
    assert best("/elsewhere/run/checkpoint-2") == str(theirs.parent / "checkpoint-2")
    assert best("D:\\runs\\checkpoint-2") == str(theirs.parent / "checkpoint-2")
    assert capsys.readouterr().err == ""
    assert best("/elsewhere/run/checkpoint-1") is None
    assert "/elsewhere/run/checkpoint-1" in capsys.readouterr().err


def test_weights_in_pickles(theirs: Path) -> None:
    use_pickled_weights(theirs)
    fresh = Parts()
    fresh.load(theirs)
    assert fresh.everything() == Parts(3).everything()


def test_weights_in_several_pickles(theirs: Path) -> None:
    use_pickled_weights(theirs)
    state = Parts(3).model.state_dict()
    (theirs / "pytorch_model.bin").unlink()
    table = {name: f"pytorch_model-0000{1 + (number > 1)}-of-00002.bin" for number, name in enumerate(state)}
    for file_name in set(table.values()):
        torch.save({name: state[name] for name in state if table[name] == file_name}, theirs / file_name)
    index = theirs / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": table}))
    fresh = Parts()
    fresh.load(theirs)
    assert fresh.everything() == Parts(3).everything()
    index.write_text(json.dumps({"weight_map": {**table, "0.bias": "../pytorch_model.bin"}}))
    with pytest.raises(CheckpointError, match="leads out of the directory"):
        Parts().load(theirs)
    index.write_text(json.dumps({"weight_map": {**table, "0.bias": "pytorch_model-00009-of-00009.bin"}}))
    with pytest.raises(CheckpointError, match=r"pytorch_model-00009-of-00009\.bin"):
        Parts().load(theirs)


def test_weights_that_do_not_fit(theirs: Path) -> None:
    use_pickled_weights(theirs)
    with pytest.raises(CheckpointError, match="of another shape") as caught:
        load_foreign_weights(Parts(width=6).model, theirs)
    assert f"the weights in {theirs} do not fit" in str(caught.value)


# ------------------------------------------------------------------------------------------------------ what is ours


def test_is_foreign(theirs: Path, ours: Path, tmp_path: Path) -> None:
    assert is_from_transformers(theirs)
    assert not is_from_transformers(ours)
    assert not is_from_transformers(write_ours(tmp_path / "both", Parts(3), both=True))
    assert not is_from_transformers(tmp_path / "nothing")
    convert(theirs, tmp_path / "a", to="ostinato")
    assert is_from_transformers(tmp_path / "a")
    convert(ours, tmp_path / "b", to="transformers")
    assert is_from_transformers(tmp_path / "b")
    convert(tmp_path / "b", tmp_path / "c", to="ostinato")
    assert not is_from_transformers(tmp_path / "c")
    with atomic_directory(tmp_path / "best-model") as scratch:
        (scratch / "trainer_state.json").write_text("{}")
    assert not is_from_transformers(tmp_path / "best-model")


# -------------------------------------------------------------------------------------------------- no code is run


class Attack:
    """Unpickled, it writes a file."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.proof}",)


def raw(value: Any) -> bytes:
    return pickle.dumps(value)


def archive(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def old_archive(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def handmade(value: Any, **more: bytes) -> bytes:
    """An archive with entries of its own."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        entries = {"archive/data.pkl": pickle.dumps(value, protocol=2), "archive/version": b"3\n"}
        for name, content in {**entries, **{f"archive/{key}": value for key, value in more.items()}}.items():
            file.writestr(name, content)
    return buffer.getvalue()


SHAPES: dict[str, Callable[[Any], bytes]] = {
    "a pickle": raw,
    "an archive": archive,
    "an archive of old": old_archive,
    "an archive by hand": handmade,
    "a script": lambda value: handmade(value, **{"constants.pkl": pickle.dumps(value, protocol=2)}),
}


def attacks(proof: Path) -> dict[str, Any]:
    attack = Attack(proof)
    return {
        "alone": attack,
        "in a state": {"state": {0: {"exp_avg": attack}}, "param_groups": [], "python": attack, "weight": attack},
        "as numbers": {"python": (), "numpy": ("MT19937", np.array([attack], dtype=object), 0, 0, 0.0), "cpu": None},
    }


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*FILES, "trainer_state.json", "model.safetensors"])
def test_a_hostile_file_is_refused(
    name: str, shape: str, forced: bool, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under every name, in every shape, even where the environment asks torch to be careless."""
    if forced:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    proof = tmp_path / "ran"
    if name == "pytorch_model.bin":
        use_pickled_weights(theirs)
    for value in attacks(proof).values():
        (theirs / name).write_bytes(SHAPES[shape](value))
        with pytest.raises(CheckpointError) as caught:
            loads_of(theirs)[name]()
        assert name in str(caught.value)
        with pytest.raises(CheckpointError) as caught:
            convert(theirs, tmp_path / "converted", to="ostinato")
            load_foreign_weights(Parts().model, tmp_path / "converted")  # safetensors are copied as they are
        if name != "model.safetensors":
            assert name in str(caught.value)
            assert not (tmp_path / "converted").exists()
        else:
            (tmp_path / "converted").rename(tmp_path / f"converted-{os.urandom(4).hex()}")
    assert not proof.exists()


def test_the_attack_would_have_worked(tmp_path: Path) -> None:
    """Control: a careless reader runs it."""
    proof = tmp_path / "ran"
    path = tmp_path / "optimizer.pt"
    path.write_bytes(archive(Attack(proof)))
    torch.load(path, weights_only=False)
    assert proof.exists()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_arguments_are_never_opened(shape: str, theirs: Path, tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    (theirs / "training_args.bin").write_bytes(SHAPES[shape](Attack(proof)))
    assert is_from_transformers(theirs)
    load_foreign_state(theirs)
    Parts().load(theirs)
    load_foreign_random_state(theirs, 0, 1)
    build_foreign_loop_state(theirs, batches_per_epoch=6, accumulation=1)
    convert(theirs, tmp_path / "converted", to="ostinato")
    assert not (tmp_path / "converted" / "training_args.bin").exists()
    assert not proof.exists()


def test_the_error_names_what_would_have_run(theirs: Path, tmp_path: Path) -> None:
    (theirs / "optimizer.pt").write_bytes(archive(Attack(tmp_path / "ran")))
    with pytest.raises(CheckpointError, match=r"optimizer\.pt names posix\.system"):
        Parts().load(theirs)


class Call:
    """Unpickled, it calls a function that is allowed by name."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> Any:
        return self.function, self.arguments


WORDS = {
    "an array of objects": Call(np.ndarray, (624,), np.dtype("O")),
    "a large array": Call(np.ndarray, (10**9,)),
    "a type": Call(np.dtype, "O"),
    "floats": np.zeros(624),
    "two dimensions": np.zeros((2, 312), dtype=np.uint32),
    "too few": np.zeros(3, dtype=np.uint32),
    "too few in a list": [0] * 623,
    "negative": [-1] * 624,
    "too large": [2**32] * 624,
    "text": ["a"] * 624,
    "nothing": None,
}


@pytest.mark.parametrize("words", WORDS)
def test_streams_that_are_none(words: str, theirs: Path) -> None:
    """The names of numpy that the file may use call nothing of numpy's."""
    before = RandomState.capture()
    numpy = ("MT19937", WORDS[words], 0, 0, 0.0)
    streams = {"python": random.getstate(), "numpy": numpy, "cpu": torch.get_rng_state()}
    torch.save(streams, theirs / "rng_state.pth")
    with pytest.raises(CheckpointError, match=r"rng_state\.pth"):
        load_foreign_random_state(theirs, 0, 1)
    assert before.is_current()


@pytest.mark.parametrize("part", ["python", "numpy", "cpu"])
@pytest.mark.parametrize("value", [None, (), (1, 2), torch.zeros(3), "MT19937"], ids=str)
def test_a_stream_that_is_none(part: str, value: Any, theirs: Path) -> None:
    streams = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}
    torch.save({**streams, part: value}, theirs / "rng_state.pth")
    with pytest.raises(CheckpointError, match=r"rng_state\.pth"):
        load_foreign_random_state(theirs, 0, 1)


# ----------------------------------------------------------------------------------------- missing, damaged, strange


@pytest.mark.parametrize(
    "name", ["optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth", "trainer_state.json", "model.safetensors"]
)
def test_a_missing_file(name: str, theirs: Path, tmp_path: Path) -> None:
    """Never a fresh part in its place, and nothing is touched."""
    (theirs / name).unlink()
    with pytest.raises(CheckpointError) as caught:
        loads_of(theirs)[name]()
    assert name in str(caught.value)
    parts = Parts()
    before = parts.everything()
    if name.endswith(".pt"):
        with pytest.raises(CheckpointError, match=name):
            load_foreign_training_parts(
                theirs, optimizer=parts.optimizer, scheduler=parts.scheduler, scaler=parts.scaler
            )
        assert parts.everything() == before
    if name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"):
        with pytest.raises(CheckpointError) as caught:
            convert(theirs, tmp_path / "converted", to="ostinato")
        assert name in str(caught.value)
        assert not (tmp_path / "converted").exists()


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file(name: str, theirs: Path) -> None:
    """Cut off anywhere, or with one bit flipped in what it holds: torch itself would load some of these."""
    if name == "pytorch_model.bin":
        use_pickled_weights(theirs)
    path, load = theirs / name, loads_of(theirs)[name]
    load()
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as file:
        entries = [entry for entry in file.infolist() if "/data" in entry.filename and entry.file_size]
    flipped = []
    for entry in entries[:4]:
        start = whole.index(entry.filename.encode()) + len(entry.filename)
        position = whole.index(_entry(path, entry.filename), start) + entry.file_size // 2
        flipped.append(whole[:position] + bytes([whole[position] ^ 16]) + whole[position + 1 :])
    cut = [whole[: len(whole) * share // 8] for share in range(8)]
    for damaged in [*cut, *flipped, b"junk" * 10, whole[:100] + whole[300:]]:
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError) as caught:
            load()
        assert name in str(caught.value)
    path.write_bytes(whole)
    load()


def _entry(path: Path, name: str) -> bytes:
    with zipfile.ZipFile(path) as file:
        return file.read(name)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "value",
    [
        *([], 3, "text", torch.zeros(2), {}, {1: 2}, {"state": 1}, None),
        {"state": {}, "param_groups": [{"params": [[1], 2]}, {"params": "ab"}]},
        {
            "state": {},
            "param_groups": [{"params": [0, 1], 5: 6, None: 7}, {"params": [2, 3], "decoupled_weight_decay": 0}],
        },
    ],
    ids=str,
)
def test_a_file_with_something_else(name: str, value: Any, theirs: Path) -> None:
    if name == "pytorch_model.bin":
        use_pickled_weights(theirs)
    torch.save(value, theirs / name)
    with pytest.raises(CheckpointError) as caught:
        loads_of(theirs)[name]()
    assert name.partition(".")[0] in str(caught.value) or str(theirs) in str(caught.value)


def test_a_link_is_not_followed(theirs: Path, tmp_path: Path) -> None:
    (theirs / "optimizer.pt").rename(tmp_path / "elsewhere.pt")
    (theirs / "optimizer.pt").symlink_to(tmp_path / "elsewhere.pt")
    with pytest.raises(CheckpointError, match=r"optimizer\.pt"):
        Parts().load(theirs)
    (theirs / "optimizer.pt").unlink()
    os.mkfifo(theirs / "optimizer.pt")
    with pytest.raises(CheckpointError, match=r"optimizer\.pt"):
        Parts().load(theirs)


def test_a_file_that_would_fill_the_memory(theirs: Path) -> None:
    """Tensors are as large as their numbers; archives unpack to what they are; a list may hold itself."""
    path = theirs / "scheduler.pt"
    torch.save({"a": torch.zeros(1).expand(10**9)}, path)
    with pytest.raises(CheckpointError, match="holds no numbers for"):
        read_torch_file(path)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", pickle.dumps({}, protocol=2))
        file.writestr("archive/data/0", b"\0" * 10**6)
    path.write_bytes(buffer.getvalue())
    with pytest.raises(CheckpointError, match="would unpack to"):
        read_torch_file(path)
    laughs: list[Any] = []
    for _ in range(100):
        laughs = [laughs, laughs]
    torch.save({"a": laughs}, path)
    assert set(read_torch_file(path)) == {"a"}


@pytest.mark.parametrize(
    "change",
    [
        {"global_step": None},
        {"global_step": -1},
        {"global_step": 2.5},
        {"global_step": True},
        {"epoch": "1"},
        {"epoch": -0.5},
        {"epoch": float("nan")},
        {"log_history": {}},
        {"log_history": [1]},
        {"stateful_callbacks": []},
        {"stateful_callbacks": "x"},
    ],
    ids=str,
)
def test_a_state_that_makes_no_sense(change: dict[str, Any], theirs: Path) -> None:
    (theirs / "trainer_state.json").write_text(json.dumps({**STATE, **change}))
    if change == {"stateful_callbacks": []}:
        assert load_foreign_state(theirs).stateful_callbacks == {}
        return
    if change == {"log_history": {}}:
        assert load_foreign_state(theirs).log_history == []
        return
    with pytest.raises(CheckpointError, match=r"trainer_state\.json"):
        load_foreign_state(theirs)
    with pytest.raises(CheckpointError, match=r"trainer_state\.json"):
        build_foreign_loop_state(theirs, batches_per_epoch=6, accumulation=1)


# -------------------------------------------------------------------------------------------------------- what fits


def load_into(directory: Path, parts: Parts, **more: Any) -> None:
    load_foreign_training_parts(directory, optimizer=parts.optimizer, scheduler=parts.scheduler, **more)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.Adamax, torch.optim.Adagrad])
def test_another_optimizer(kind: Any, theirs: Path) -> None:
    """Their file does not say which one it is of; torch would turn AdamW into Adam."""
    parts = Parts(optimizer=kind)
    before = parts.everything()
    with pytest.raises(CheckpointError, match="the optimizer of this run is not the one"):
        load_into(theirs, parts)
    assert parts.everything() == before


def test_another_model(theirs: Path) -> None:
    with pytest.raises(CheckpointError, match=r"parameter 0: \[5, 3\] saved, \[6, 3\] now"):
        load_into(theirs, Parts(width=6))


def test_other_groups(theirs: Path) -> None:
    parts = Parts()
    parts.optimizer = torch.optim.AdamW(parts.model.parameters(), lr=0.1)
    with pytest.raises(CheckpointError, match=r"groups of \[2, 2\] parameters were saved, this run has \[4\]"):
        load_into(theirs, parts)


def test_state_of_no_parameter(theirs: Path) -> None:
    state = Parts(3).optimizer.state_dict()
    state["state"].update({99: state["state"][0], "x": 1})
    torch.save(state, theirs / "optimizer.pt")
    with pytest.raises(CheckpointError, match="state of no parameter"):
        load_into(theirs, Parts())


def test_another_schedule(theirs: Path) -> None:
    parts = Parts()
    parts.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(parts.optimizer)  # type: ignore[assignment]
    before = parts.everything()
    with pytest.raises(CheckpointError, match="the scheduler of this run is not the one"):
        load_into(theirs, parts)
    assert parts.everything() == before


def test_a_state_of_another_torch(theirs: Path) -> None:
    """Flags that torch added over time may be missing."""
    state, schedule = Parts(3).optimizer.state_dict(), Parts(3).scheduler.state_dict()
    for group in state["param_groups"]:
        for name in ("decoupled_weight_decay", "fused"):
            group.pop(name, None)
    schedule.pop("_is_initial", None)
    torch.save(state, theirs / "optimizer.pt")
    torch.save(schedule, theirs / "scheduler.pt")
    parts = Parts()
    load_into(theirs, parts)
    assert parts.scheduler.last_epoch == 3


def test_a_scaler_that_nobody_uses(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_foreign_scaler(theirs, None)
    assert "scaler.pt" in capsys.readouterr().err
    scaler = torch.amp.GradScaler("cpu")
    load_foreign_scaler(theirs, scaler)
    assert scaler.get_scale() == 2.0**7


def test_half_precision_state_is_not_rounded(tmp_path: Path) -> None:
    """float32 averages of bfloat16 weights stay float32."""
    parts = Parts()
    parts.model.to(torch.bfloat16)
    state = parts.optimizer.state_dict()
    state["state"] = {
        number: {"step": torch.tensor(3.0), "exp_avg": torch.rand(p.shape), "exp_avg_sq": torch.rand(p.shape)}
        for number, p in enumerate(p for group in parts.optimizer.param_groups for p in group["params"])
    }
    directory = write_theirs(tmp_path / "checkpoint-3", parts)
    torch.save(state, directory / "optimizer.pt")
    load_into(directory, parts)
    found = parts.optimizer.state_dict()["state"]
    assert _comparable(found) == _comparable(state["state"])


# ------------------------------------------------------------------------------------------------- where it stood


@pytest.mark.parametrize("accumulation", [1, 2, 3])
@pytest.mark.parametrize("batches", [1, 5, 6, 7])
def test_the_place_in_the_data(batches: int, accumulation: int, tmp_path: Path, capsys: Any) -> None:
    """Walk through three epochs, as transformers counts them, and ask at every step."""
    directory = write_theirs(tmp_path / "checkpoint-1", Parts())
    step = 0
    for epoch in range(3):
        done = 0
        while done < batches:
            done = min(done + accumulation, batches)
            step += 1
            state = {**STATE, "global_step": step, "epoch": epoch + done / batches, "log_history": []}
            (directory / "trainer_state.json").write_text(json.dumps(state))
            place = build_foreign_loop_state(directory, batches_per_epoch=batches, accumulation=accumulation)["place"]
            expected = (epoch, done) if done < batches else (epoch + 1, 0)
            assert (place["epoch"], place["batch"]) == expected
            assert place["stream"] is None and place["before_read"] is None
            by_steps = build_foreign_loop_state(
                directory, batches_per_epoch=batches, accumulation=accumulation, epoch_closed=False
            )["place"]
            assert (by_steps["epoch"], by_steps["batch"]) == (epoch, done)
    assert "not the same" not in capsys.readouterr().err


def test_a_place_among_other_batches(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice as many batches, since they are half as large: the rows seen are what counts."""
    (theirs / "trainer_state.json").write_text(json.dumps({**STATE, "global_step": 10, "epoch": 10 / 6}))
    place = build_foreign_loop_state(theirs, batches_per_epoch=12, accumulation=1)["place"]
    assert (place["epoch"], place["batch"]) == (1, 8)
    said = capsys.readouterr().err
    assert "batch size, accumulation or data have changed" in said
    assert "epoch 1, batch 8 of 12" in said


def test_a_place_in_a_stream(theirs: Path) -> None:
    """transformers counts a stream of unknown length in steps of the run: the second pass, one batch in."""
    (theirs / "trainer_state.json").write_text(json.dumps({**STATE, "global_step": 4, "epoch": 1 + 1 / 5}))
    place = build_foreign_loop_state(theirs, batches_per_epoch=5, accumulation=1)["place"]
    assert (place["epoch"], place["batch"]) == (1, 1)


def test_the_losses_so_far(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def losses(*history: dict[str, Any]) -> tuple[float, int]:
        (theirs / "trainer_state.json").write_text(json.dumps({**STATE, "log_history": list(history)}))
        loop = build_foreign_loop_state(theirs, batches_per_epoch=6, accumulation=1)
        assert loop["last_logged_step"] == 3
        assert float(loop["pending_loss"]) == 0.0
        return loop["total_loss"], loop["steps_without_loss"]

    assert losses({"loss": 2.0, "step": 1}, {"eval_loss": 9.0, "step": 2}, {"loss": 3.0, "step": 3}) == (8.0, 0)
    assert capsys.readouterr().err == ""
    assert losses({"loss": 2.5, "step": 2}) == (5.0, 1)
    assert "the losses of the 1 steps before step 3" in capsys.readouterr().err
    assert losses() == (0.0, 3)
    assert losses({"loss": "nan", "step": 3}, {"loss": 1.0, "step": "3"}, {"loss": 1.0}) == (0.0, 3)


# ------------------------------------------------------------------------------------------------------- converting


def tensors_of(directory: Path) -> dict[str, Any]:
    """Everything our files hold, bit for bit."""
    stems = sorted({path.stem for path in directory.glob("*.json")} & {"optimizer", "scheduler", "scaler", "loop"})
    streams = sorted(path.stem for path in directory.glob("rng-*.json"))
    return {stem: _comparable(read_tree(directory, stem)) for stem in (*stems, *streams)}


@pytest.mark.parametrize("world_size", [1, 3])
def test_there_and_back(world_size: int, tmp_path: Path) -> None:
    source = write_ours(tmp_path / "checkpoint-3", Parts(3), world_size=world_size)
    before = contents(source)
    convert(source, tmp_path / "theirs", to="transformers")
    convert(tmp_path / "theirs", tmp_path / "back", to="ostinato")
    assert contents(source) == before
    assert tensors_of(tmp_path / "back") == tensors_of(source)
    assert set(contents(tmp_path / "back")) == set(before)
    for name in ("model.safetensors", "trainer_state.json", "training_args.json", "tokenizer/vocabulary.txt"):
        assert contents(tmp_path / "back")[name] == before[name]
    parts = Parts()
    load_training_parts(tmp_path / "back", optimizer=parts.optimizer, scheduler=parts.scheduler)
    for path in ("theirs", "back"):
        verify(tmp_path / path)


def test_back_and_there(theirs: Path, tmp_path: Path) -> None:
    before = contents(theirs)
    convert(theirs, tmp_path / "ours", to="ostinato")
    convert(tmp_path / "ours", tmp_path / "back", to="transformers")
    assert contents(theirs) == before
    for name in ("optimizer.pt", "scheduler.pt", "scaler.pt"):
        first, second = (torch.load(d / name, weights_only=True) for d in (theirs, tmp_path / "back"))
        assert _comparable(first) == _comparable(second)
    states = [read.read_random_state(d / "rng_state.pth") for d in (theirs, tmp_path / "back")]
    assert _comparable(vars(states[0])) == _comparable(vars(states[1]))
    assert {*contents(tmp_path / "back")} == {*before, "MANIFEST.json"}
    parts = Parts()
    parts.load(tmp_path / "ours")
    assert parts.everything() == Parts(3).everything()


@pytest.mark.parametrize("kind", ["channels last", "shared", "strange types"])
def test_there_and_back_with_odd_tensors(kind: str, tmp_path: Path) -> None:
    source = write_ours(tmp_path / "checkpoint-3", Parts(3))
    shared = torch.rand(3)
    state = {
        "channels last": {0: {"exp_avg": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)}},
        "shared": {0: {"a": shared, "b": shared}, 1: {"a": shared[1:]}},
        "strange types": {
            0: {"a": torch.rand(3, dtype=torch.float64), "b": torch.tensor([float("nan"), -0.0]), "c": None},
            1: {"d": torch.rand(2).to(torch.bfloat16), "e": torch.zeros(0, 4), "f": (1, [2.5, float("inf")])},
            2: {"g": torch.rand(2).to(torch.complex64), "h": torch.float16, "i": torch.Size([1, 2])},
        },
    }[kind]
    tree = read_tree(source, "optimizer")
    tree["state_dict"]["state"] = state
    with atomic_directory(tmp_path / "odd") as scratch:
        for path in source.iterdir():
            if path.is_file() and path.name != "MANIFEST.json":
                (scratch / path.name).write_bytes(path.read_bytes())
        write_tree(tree, scratch, "optimizer")
    convert(tmp_path / "odd", tmp_path / "theirs", to="transformers")
    convert(tmp_path / "theirs", tmp_path / "back", to="ostinato")
    expected, found = (read_tree(tmp_path / name, "optimizer")["state_dict"]["state"] for name in ("odd", "back"))
    assert _bits(found) == _bits(expected)
    if kind == "shared":
        assert found[0]["a"] is found[0]["b"]


def _bits(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        flat = torch.view_as_real(value) if value.is_complex() else value
        raw_bytes = flat.contiguous().view(-1).view(torch.uint8).tolist() if flat.numel() else []
        return (str(value.dtype), tuple(value.shape), value.stride(), raw_bytes)
    if isinstance(value, dict):
        return {key: _bits(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(_bits, value)]
    return repr(value)


def test_both_layouts_side_by_side(tmp_path: Path) -> None:
    source = write_ours(tmp_path / "checkpoint-3", Parts(3), both=True)
    convert(source, tmp_path / "ours", to="ostinato")
    convert(source, tmp_path / "theirs", to="transformers")
    assert not [name for name in contents(tmp_path / "ours") if name.endswith((".pt", ".pth", ".bin"))]
    assert not {"optimizer.json", "loop.json", "rng-0.json"} & contents(tmp_path / "theirs").keys()
    assert tensors_of(tmp_path / "ours") == tensors_of(source)
    assert torch.load(tmp_path / "theirs" / "training_args.bin", weights_only=True)["seed"] == 42


def test_without_a_schedule(tmp_path: Path) -> None:
    parts = Parts(3)
    with atomic_directory(tmp_path / "checkpoint-3") as scratch:
        weights.save_model(parts.model, scratch)
        training_state.save_training_parts(scratch, optimizer=parts.optimizer, scheduler=None)
        save_random_state(scratch, 0, 1)
        (scratch / "trainer_state.json").write_text(json.dumps(STATE))
        save_loop_state(scratch, {"place": {}})
    convert(tmp_path / "checkpoint-3", tmp_path / "theirs", to="transformers")
    convert(tmp_path / "theirs", tmp_path / "back", to="ostinato")
    assert contents(tmp_path / "back").keys() == contents(tmp_path / "checkpoint-3").keys()


def test_what_was_converted_can_be_found(theirs: Path, ours: Path, tmp_path: Path) -> None:
    convert(theirs, tmp_path / "a" / "checkpoint-3", to="ostinato")
    convert(ours, tmp_path / "b" / "checkpoint-3", to="transformers")
    assert is_checkpoint(tmp_path / "a" / "checkpoint-3")
    assert is_checkpoint(tmp_path / "b" / "checkpoint-3")


def test_our_progress_goes_along(ours: Path, tmp_path: Path) -> None:
    convert(ours, tmp_path / "theirs", to="transformers")
    loop = build_foreign_loop_state(tmp_path / "theirs", batches_per_epoch=6, accumulation=1)
    assert _comparable(loop) == _comparable(read_tree(ours, "loop"))


def test_a_sidecar_that_is_none(ours: Path, tmp_path: Path) -> None:
    convert(ours, tmp_path / "theirs", to="transformers")
    (tmp_path / "theirs" / "MANIFEST.json").unlink()
    for number, tree in enumerate(([], {"loop": {}}, {"loop": {}, "parts": {}, "streams": [{}, {}]})):
        write_tree(tree, tmp_path / "theirs", "ostinato")
        with pytest.raises(CheckpointError, match=r"ostinato\.json"):
            convert(tmp_path / "theirs", tmp_path / str(number), to="ostinato")


def test_pickled_weights_become_safetensors(theirs: Path, tmp_path: Path) -> None:
    use_pickled_weights(theirs)
    convert(theirs, tmp_path / "ours", to="ostinato")
    assert not list((tmp_path / "ours").glob("*.bin"))
    parts = Parts()
    weights.load_weights(parts.model, tmp_path / "ours")
    assert _comparable(parts.model.state_dict()) == _comparable(Parts(3).model.state_dict())


def test_sharded_weights_are_copied(theirs: Path, tmp_path: Path) -> None:
    state = Parts(3).model.state_dict()
    (theirs / "model.safetensors").unlink()
    table = {name: f"model-0000{1 + (number > 1)}-of-00002.safetensors" for number, name in enumerate(state)}
    for file_name in set(table.values()):
        save_file({name: state[name] for name in state if table[name] == file_name}, theirs / file_name)
    (theirs / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    convert(theirs, tmp_path / "ours", to="ostinato")
    for directory in (theirs, tmp_path / "ours"):
        parts = Parts()
        load_foreign_weights(parts.model, directory)
        assert _comparable(parts.model.state_dict()) == _comparable(state)


def test_nothing_is_overwritten(theirs: Path, ours: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for source, target, to, why in [
        (theirs, tmp_path / "there", "ostinato", "nothing is overwritten"),
        (theirs, theirs, "ostinato", "nothing is overwritten"),
        (theirs, theirs / "inside", "ostinato", "the source is not changed"),
        (theirs, tmp_path / "new", "transformers", "already has the layout of transformers"),
        (ours, tmp_path / "new", "ostinato", "already has the layout of ostinato"),
        (ours, tmp_path / "new", "lightning", "two layouts"),
        (tmp_path / "there", tmp_path / "new", "ostinato", "trainer_state.json"),
        (tmp_path / "nowhere", tmp_path / "new", "ostinato", "trainer_state.json"),
    ]:
        before = contents(source)
        with pytest.raises(CheckpointError, match=why):
            convert(source, target, to=to)  # type: ignore[arg-type]
        assert contents(source) == before
        assert not (tmp_path / "new").exists()


def test_a_damaged_source(ours: Path, tmp_path: Path) -> None:
    (ours / "optimizer.safetensors").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"optimizer\.safetensors is truncated"):
        convert(ours, tmp_path / "theirs", to="transformers")
    assert not (tmp_path / "theirs").exists()


def test_links_are_not_copied(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (theirs / "notes.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(CheckpointError, match=r"notes\.txt"):
        convert(theirs, tmp_path / "ours", to="ostinato")
    assert not (tmp_path / "ours").exists()


def test_a_failure_leaves_nothing(ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("unexpected pos 35712 vs 35604")

    before = contents(ours)
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(CheckpointError, match=r"optimizer\.pt"):
        convert(ours, tmp_path / "theirs" / "checkpoint-3", to="transformers")
    assert list((tmp_path / "theirs").iterdir()) == []
    assert contents(ours) == before


# -------------------------------------------------------------------------------------------------------- exporting


def test_only_plain_values_are_written(tmp_path: Path) -> None:
    path = tmp_path / "optimizer.pt"
    for value in ({"hook": print}, {"odd": Parts}, {"deep": {"er": [lambda: 0]}}, {"array": np.zeros(2)}):
        with pytest.raises(CheckpointError, match=r"optimizer\.pt"):
            exporter.write_torch_file(path, value)
        assert not path.exists()
    exporter.write_torch_file(path, {"best": np.float64(1.5), "steps": [np.int64(3)]})
    assert torch.load(path, weights_only=True) == {"best": 1.5, "steps": [3]}


def test_exported_streams(tmp_path: Path) -> None:
    np.random.randn()
    random.gauss(0, 1)
    exporter.export_random_state(tmp_path, 0, 1)
    torch.load(tmp_path / "rng_state.pth", weights_only=True)
    expected = RandomState.capture()
    torch.rand(1), np.random.rand(), random.random()
    load_foreign_random_state(tmp_path, 0, 1)
    assert expected.is_current()
    assert _comparable(vars(RandomState.capture())) == _comparable(vars(expected))


def test_exported_device_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One process: the stream of its device. Several: those of all."""
    streams = [torch.full((16,), number, dtype=torch.uint8) for number in range(2)]
    devices = {"cuda": streams, "mps": [torch.zeros(4, dtype=torch.uint8)]}
    state = dataclasses.replace(RandomState.capture(), devices=devices)
    exporter.write_random_state(tmp_path, state, 0, 1)
    exporter.write_random_state(tmp_path, state, 1, 2)
    assert torch.equal(torch.load(tmp_path / "rng_state.pth", weights_only=True)["cuda"], streams[0])
    assert len(torch.load(tmp_path / "rng_state_1.pth", weights_only=True)["cuda"]) == 2
    assert "MPS" in capsys.readouterr().err


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(content: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("unexpected pos 35712 vs 35604")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(CheckpointError, match=r"cannot write .*scheduler\.pt"):
        exporter.write_torch_file(tmp_path / "scheduler.pt", {})
    assert list(tmp_path.iterdir()) == []


def test_errors_say_what_to_do(theirs: Path) -> None:
    (theirs / "optimizer.pt").unlink()
    with pytest.raises(CheckpointError) as caught:
        load_into(theirs, Parts())
    assert caught.value.why and caught.value.fix
    assert str(files.build_missing_error(theirs / "optimizer.pt")) == str(caught.value)
