"""The directory of a run: that it cannot be written to, or has no room, is known before the first step."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import pickle
import random
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.checkpoint import io, space, training_state, weights
from ostinato.checkpoint.atomic import atomic_directory, sweep_leftovers
from ostinato.checkpoint.identity import create_run_id, write_run_id
from ostinato.checkpoint.space import (
    OutputDirError,
    check_space,
    check_writable,
    count_coexisting,
    estimate_state_factor,
    forecast_size,
    open_directory,
)
from ostinato.core.errors import CheckpointError
from ostinato.core.random import RandomState
from tests.support.encoder import ROWS, Encoder

SOURCE = str(Path(space.__file__).parents[2])

CHECK = """
import os, sys
from ostinato.checkpoint.space import check_writable
assert "torch" not in sys.modules
if len(sys.argv) > 2:
    os.setuid(int(sys.argv[2]))
try:
    check_writable(sys.argv[1])
    print("fine")
except OSError as error:
    print(isinstance(error, PermissionError), error.errno)
    print(error)
"""


def refused(directory: str | Path) -> OutputDirError:
    with pytest.raises(CheckpointError) as caught:
        check_writable(directory)
    error = caught.value
    assert isinstance(error, (OutputDirError, OSError, ValueError))
    assert repr(str(directory)) in error.what and error.why and error.fix, "three parts, and which directory"
    assert len(str(error).splitlines()) == 3
    assert error.__cause__ is not None
    return error  # type: ignore[return-value]


# ---- writing -----------------------------------------------------------------------------------------------------


def test_a_directory_is_made_and_left_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    streams = random.getstate()
    check_writable(tmp_path / "a" / "b" / "out")
    assert os.listdir(tmp_path / "a" / "b" / "out") == []
    check_writable(str(tmp_path / "a"))
    assert os.listdir(tmp_path / "a") == ["b"]
    monkeypatch.chdir(tmp_path)
    check_writable("relative/out")
    check_writable("")
    assert sorted(os.listdir(tmp_path)) == ["a", "relative"]
    assert random.getstate() == streams


def test_what_is_there_stays(tmp_path: Path):
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / "model.safetensors").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "checkpoint-2")
    check_writable(tmp_path)
    check_writable(tmp_path / "link")
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-2", "link"]
    assert os.listdir(tmp_path / "checkpoint-2") == ["model.safetensors"]


def test_it_tries_all_that_a_save_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever of it fails is told, and nothing stays behind, neither files nor directories."""
    failing: list[tuple[Any, str]] = [(os, "mkdir"), (os, "open"), (os, "fsync"), (os, "rename"), (shutil, "rmtree")]
    for module, name in failing:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, _failing(errno.EIO, once=getattr(module, name)))
            error = refused(tmp_path / "a" / "out")
        assert error.errno == errno.EIO and "Input/output error" in error.why
        if name != "rmtree":  # if it cannot be removed it stays
            assert os.listdir(tmp_path) == [], name
    (leftover,) = os.listdir(tmp_path / "a" / "out")
    assert sweep_leftovers(tmp_path / "a" / "out") == [leftover], "the next run clears it away"


def _failing(number: int, *, once: Callable[..., Any]) -> Callable[..., Any]:
    calls = []

    def fail(*arguments: Any, **keywords: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise OSError(number, os.strerror(number))
        return once(*arguments, **keywords)

    return fail


def test_killed_in_between_the_next_run_clears_up(tmp_path: Path):
    script = """
import os, signal, sys
from ostinato.checkpoint import io, space
io.sync_directory = lambda path: os.kill(os.getpid(), signal.SIGKILL)
space.check_writable(sys.argv[1])
"""
    child = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env={**os.environ, "PYTHONPATH": SOURCE}, check=False
    )
    assert child.returncode < 0
    assert len(os.listdir(tmp_path)) == 1
    assert sweep_leftovers(tmp_path) and os.listdir(tmp_path) == []


def test_a_run_that_fails_before_it_writes_leaves_no_directory(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), open_directory(tmp_path / "a" / "out"):
        assert os.path.isdir(tmp_path / "a" / "out")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []
    with pytest.raises(ZeroDivisionError), open_directory(tmp_path / "a" / "out"):
        (tmp_path / "a" / "out" / "checkpoint-2").mkdir()
        raise ZeroDivisionError
    assert os.listdir(tmp_path / "a" / "out") == ["checkpoint-2"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ZeroDivisionError), open_directory(tmp_path / "empty"):
        raise ZeroDivisionError
    with open_directory(tmp_path / "new"):
        pass
    assert sorted(os.listdir(tmp_path)) == ["a", "empty", "new"], "what was there stays, and so does what succeeded"
    (tmp_path / "file").touch()
    with pytest.raises(OutputDirError), open_directory(tmp_path / "file"):
        pytest.fail("not entered")


def test_a_file_in_the_way_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    error = refused(tmp_path / "file")
    assert isinstance(error, FileExistsError) and error.errno == errno.EEXIST
    assert error.why == f"{tmp_path / 'file'} is a file, not a directory"
    error = refused(tmp_path / "file" / "deep" / "out")
    assert isinstance(error, NotADirectoryError)
    assert error.why == f"{tmp_path / 'file'} is a file, not a directory"
    assert (tmp_path / "file").read_text() == "x"


def test_a_link_to_nowhere_is_named(tmp_path: Path):
    (tmp_path / "link").symlink_to("/not/there")
    assert refused(tmp_path / "link").why == f"{tmp_path / 'link'} is a link to /not/there, which does not exist"
    assert refused(tmp_path / "link" / "out").why.startswith(f"{tmp_path / 'link'} is a link to")


def test_names_and_paths_that_are_too_long(tmp_path: Path):
    error = refused(tmp_path / "made first" / ("n" * 300))
    assert error.errno == errno.ENAMETOOLONG
    assert error.why.startswith("the name nnnnnnnnnnnnnnnnnnnn… has 300 bytes; most file systems allow 255")
    assert "shorter" in error.fix
    assert os.listdir(tmp_path) == [], "what was made on the way is taken back"
    room = 4095 - len(str(tmp_path))  # fits as a directory, but not with what a save puts into it
    deep = tmp_path / "/".join(["d" * 200] * (room // 201))
    deep = deep / ("e" * (4095 - len(str(deep)) - 30))
    if os.uname().sysname == "Linux":
        assert "more than the system allows" in refused(deep).why
        assert os.listdir(tmp_path) == []


def test_a_place_where_nothing_can_be_made():
    if not os.path.isdir("/proc/self"):
        pytest.skip("needs /proc")
    error = refused("/proc/ostinato/out")
    assert isinstance(error, FileNotFoundError) and "/proc is the last part of the path that exists" in error.why


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
def test_what_is_no_path(tmp_path: Path, name: str):
    assert "it is not a path" in refused(tmp_path / "new" / name).why
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "kind", "why"),
    [
        (errno.EACCES, PermissionError, "permission denied in {out} (drwx"),
        (errno.EPERM, PermissionError, "permission denied in {out} (drwx"),
        (errno.EROFS, OSError, "the file system of {out} is read-only"),
        (errno.ENOSPC, OSError, "the disk of {out} is full"),
        (errno.EDQUOT, OSError, "your quota on the disk of {out} is used up"),
    ],
)
def test_every_reason_has_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[OSError], why: str
):
    def refuse(path: Path, content: bytes) -> None:
        assert len(content) > 0, "an empty file fits on a full disk"
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(io, "create_file", refuse)
    error = refused(tmp_path)
    assert isinstance(error, kind) and isinstance(error, ValueError)
    assert error.errno == number and error.filename == str(tmp_path)
    assert error.why.startswith(why.format(out=tmp_path))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert os.listdir(tmp_path) == []


def child(*arguments: object, within: str = "") -> list[str]:
    """What `check_writable` says in another process; `within` is a shell command that it runs after, in private."""
    command = [sys.executable, "-c", CHECK, *map(str, arguments)]
    if within:
        command = ["unshare", "-rm", "sh", "-c", f'{within} && exec "$@"', "sh", *command]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if within and done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(os.name != "posix", reason="rights as POSIX has them")
def test_permission_denied_for_real():
    with tempfile.TemporaryDirectory() as out, contextlib.ExitStack() as cleanup:
        cleanup.callback(os.chmod, out, 0o700)
        os.chmod(out, 0o555)
        other = [65534] if os.geteuid() == 0 else []  # root may do everything
        for directory in (Path(out), Path(out) / "new"):
            kind, _, why, fix = child(directory, *other)
            assert kind == f"True {errno.EACCES}"
            user = other[0] if other else os.geteuid()
            assert (
                f"permission denied in {out} (dr-xr-xr-x of user {os.geteuid()}; this process is user {user})" in why
            )
            assert "another output_dir" in fix
        assert os.listdir(out) == []
        os.chmod(out, 0o777)
        assert child(Path(out) / "new", *other) == ["fine"]
        assert stat.S_ISDIR(os.stat(Path(out) / "new").st_mode)


def test_a_file_system_that_can_only_be_read_for_real(tmp_path: Path):
    for directory in (tmp_path, tmp_path / "new"):
        kind, _, why, _ = child(directory, within=f"mount -t tmpfs -o ro none {tmp_path}")
        assert kind == f"False {errno.EROFS}"
        assert why.endswith(f"the file system of {tmp_path} is read-only")


def test_a_full_disk_for_real(tmp_path: Path):
    fill = f"mount -t tmpfs -o size=64k none {tmp_path} && (cat /dev/zero > {tmp_path}/x 2>/dev/null || true)"
    kind, _, why, _ = child(tmp_path, within=fill)
    assert kind == f"False {errno.ENOSPC}" and why.endswith(f"the disk of {tmp_path} is full")
    fill = f"mount -t tmpfs -o nr_inodes=3 none {tmp_path} && touch {tmp_path}/1 {tmp_path}/2"
    assert child(tmp_path, within=fill)[2].endswith(
        f"the disk of {tmp_path} has no free inodes: it cannot hold more files"
    )


# ---- room --------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A disk with so many bytes free for everybody, and so many for root."""

    def pretend(free: int, *, for_root: int | None = None, total: int = 10**12, root: bool = False) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=total, free=free))
        most = free if for_root is None else for_root
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bfree=most, f_frsize=1))
        monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)

    return pretend


def test_enough_room_is_not_spoken_of(tmp_path: Path, disk: Callable[..., None]):
    disk(400)
    assert check_space(tmp_path, 100, keep=4) is None
    assert check_space(tmp_path / "not" / "there yet", 100, keep=4) is None
    assert check_space(tmp_path, 399, keep=None) is None
    assert check_space(tmp_path, 0, keep=10**9) is None


def test_room_for_some_is_said(tmp_path: Path, disk: Callable[..., None]):
    disk(3_000_000_000)
    assert check_space(tmp_path, 1_300_000_000, keep=4) == (
        f"{tmp_path} has space for 2 checkpoints of about 1.3 GB, and there will be 4: "
        "free 2.2 GB, or keep fewer with save_total_limit"
    )
    assert "space for 1 checkpoint of about 2.9 GB" in str(check_space(tmp_path, 2_900_000_000, keep=2))


def test_no_room_for_one_is_an_error(tmp_path: Path, disk: Callable[..., None]):
    disk(3_000_000)
    with pytest.raises(CheckpointError) as caught:
        check_space(tmp_path, 1_300_000_000, keep=1)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.why == "one takes about 1.3 GB, and 3.0 MB are free"
    assert "save_only_model=True" in caught.value.fix


def test_what_might_work_is_not_refused(tmp_path: Path, disk: Callable[..., None]):
    disk(95)
    assert "space for 0" in str(check_space(tmp_path, 100, keep=1)), "the forecast is not that exact"
    disk(0, total=0)
    assert check_space(tmp_path, 100, keep=1) is None, "a file system that does not say"
    disk(0, for_root=200, root=True)
    assert "space for 0" in str(check_space(tmp_path, 100, keep=1)), "root may use what is kept for it"
    disk(0, for_root=200, root=False)
    with pytest.raises(CheckpointError):
        check_space(tmp_path, 100, keep=1)


def test_a_real_disk_is_asked(tmp_path: Path):
    assert check_space(tmp_path, 1000, keep=1) is None
    with pytest.raises(OSError, match="no space for a checkpoint"):
        check_space(tmp_path, 10**18, keep=1)


@pytest.mark.parametrize(
    ("saves", "limit", "present", "more"),
    [
        (100, 2, 0, 3),  # the oldest goes after the newest came
        (100, 2, 2, 1),
        (100, 2, 5, 1),
        (1, 2, 0, 1),
        (100, None, 0, 100),
        (100, 0, 0, 100),
        (None, None, 0, None),
        (None, 3, 1, 3),
        (0, 2, 0, 0),
    ],
)
def test_how_many_lie_there_at_once(saves: int | None, limit: int | None, present: int, more: int | None):
    assert count_coexisting(saves, limit, present=present) == more


def taken(out: Path, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> int:
    """The bytes of a checkpoint after a step."""
    if optimizer is not None:
        model(**{name: value[None] for name, value in ROWS[0].items()})["loss"].backward()
        optimizer.step()
    state = RandomState.capture()
    streams = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    with atomic_directory(out / "checkpoint-2") as scratch:
        weights.save_model(model, scratch)
        if optimizer is not None:
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
            training_state.save_training_parts(scratch, optimizer=optimizer, scheduler=schedule)
            training_state.save_random_state(scratch, 0, 1)
        training_state.save_loop_state(scratch, {"loss_sum": 1.5, "streams": streams})  # where the epoch began
        (scratch / "trainer_state.json").write_text("x" * 800)
        (scratch / "training_args.json").write_text("x" * 3500)
        write_run_id(scratch, create_run_id())
    return _bytes_of(out / "checkpoint-2")


def _bytes_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("kind", "options", "factor"),
    [
        (torch.optim.AdamW, {}, 2),
        (torch.optim.AdamW, {"amsgrad": True}, 3),
        (torch.optim.SGD, {}, 0),
        (torch.optim.SGD, {"momentum": 0.9}, 1),
        (torch.optim.Adagrad, {}, 1),
        (torch.optim.RMSprop, {"centered": True}, 2),
    ],
)
def test_the_forecast_is_what_a_save_takes(
    tmp_path: Path, kind: Callable[..., torch.optim.Optimizer], options: dict[str, Any], factor: int
):
    model = Encoder()
    optimizer = kind(model.parameters(), lr=0.1, **options)
    forecast = forecast_size(model, estimate_state_factor(optimizer))  # before there is any state
    size = taken(tmp_path, model, optimizer)
    assert estimate_state_factor(optimizer) == factor
    assert forecast == pytest.approx(size, rel=0.1)
    if factor:
        assert forecast_size(model, factor - 1) < 0.9 * size, "the states of the optimizer are most of it"


def test_the_model_alone_takes_less(tmp_path: Path):
    assert forecast_size(Encoder(), None) == pytest.approx(taken(tmp_path, Encoder(), None), rel=0.1)


def test_weights_that_are_not_trained_have_no_states(tmp_path: Path):
    model = Encoder(64)
    model.layers.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    assert forecast_size(model, 2) == pytest.approx(taken(tmp_path, model, optimizer), rel=0.1)


def test_a_model_of_transformers_is_forecast_too(tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    model = transformers.BertForMaskedLM(config)
    optimizer = torch.optim.AdamW(model.parameters())
    assert forecast_size(model, 2) == pytest.approx(taken(tmp_path, model, optimizer), rel=0.1)


def test_of_an_adapted_model_only_the_adapters_are_saved(tmp_path: Path):
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256
    )
    model = peft.get_peft_model(
        transformers.BertForMaskedLM(config), peft.LoraConfig(r=16, target_modules=["query", "value"])
    )
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    assert forecast_size(model, 2) == pytest.approx(taken(tmp_path, model, optimizer), rel=0.1)


@pytest.mark.parametrize(
    ("name", "group", "factor"),
    [
        ("AdamW8bit", {"betas": (0.9, 0.99)}, 0.5),
        ("Adafactor", {"beta2_decay": -0.8}, 0),
        ("Lion", {"betas": (0.9, 0.99)}, 1),
        ("RMSprop", {"centered": True, "momentum": 0.9}, 3),
        ("MyOwn", {"lr": 0.1}, 0),
    ],
)
def test_other_optimizers_keep_what_they_keep(name: str, group: dict[str, Any], factor: float):
    optimizer = type(name, (), {"param_groups": [group]})()
    assert estimate_state_factor(optimizer) == factor
    assert estimate_state_factor(object()) == 0
