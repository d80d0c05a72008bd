"""SIGKILL, at every system call of a save that could matter, and in the middle of writing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ostinato.checkpoint.atomic
from ostinato.checkpoint.atomic import atomic_directory, sweep_leftovers, verify
from ostinato.checkpoint.retention import get_last_checkpoint, list_checkpoints
from tests.support.launcher import run

SOURCE = str(Path(ostinato.checkpoint.atomic.__file__).parents[2])

# Does not import torch, and is started from a process that has imported the rest: dozens of times have to be quick.
CHILD = """
import os, shutil, signal, sys
from pathlib import Path
target, kill_at = Path(sys.argv[1]), int(sys.argv[2])
calls = 0

def dying(function):
    def wrapped(*arguments, **keywords):
        global calls
        calls += 1
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **keywords)
    return wrapped

from ostinato.checkpoint.atomic import atomic_directory
assert "torch" not in sys.modules
for name in ("open", "fsync", "rename", "mkdir", "unlink", "rmdir", "write", "scandir"):
    setattr(os, name, dying(getattr(os, name)))
with atomic_directory(target) as scratch:
    for name in ("model.safetensors", "trainer_state.json"):
        with open(scratch / name, "w") as file:
            file.write("new")
            file.flush()
            dying(lambda: None)()
            file.write("new")
"""

WAITING = """
import sys, time
from pathlib import Path
from ostinato.checkpoint.atomic import atomic_directory
with atomic_directory(Path(sys.argv[1])) as scratch:
    with open(scratch / "model.safetensors", "w") as file:
        file.write("half")
        file.flush()
        print("writing", flush=True)
        time.sleep(600)
"""


def command(script: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", script, *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCE}


def write(target: Path) -> None:
    with atomic_directory(target) as scratch:
        (scratch / "model.safetensors").write_text("old")
        (scratch / "trainer_state.json").write_text("old")


@pytest.mark.parametrize("replacing", [False, True])
def test_killed_at_any_moment_a_save_is_whole_or_absent(tmp_path: Path, replacing: bool):
    (program := tmp_path / "child.py").write_text(CHILD)
    outcomes = []
    for kill_at in range(1, 200):
        out = tmp_path / str(kill_at)
        write(out / "checkpoint-10")
        if replacing:
            write(out / "checkpoint-20")
        child = run(program, out / "checkpoint-20", kill_at, imports=("ostinato.checkpoint.atomic",))
        assert child.returncode in (0, -signal.SIGKILL)

        verify(out / "checkpoint-10")
        for path in list_checkpoints(out):  # whatever can be seen is whole, without any repair
            verify(path)
        sweep_leftovers(out)
        if (out / "checkpoint-20").exists():
            verify(out / "checkpoint-20")
            outcomes.append((out / "checkpoint-20" / "model.safetensors").read_text())
        else:
            outcomes.append("absent")
        assert not [name for name in os.listdir(out) if name.startswith(".")]
        if child.returncode == 0:
            break
    else:
        pytest.fail("the child was killed every time: the save never ended")
    before = "old" if replacing else "absent"
    assert outcomes[-1] == "newnew"
    assert outcomes.count(before) > 5, "the kills did not hit the save"
    # Once it is there it stays: no later moment of the same save loses it again.
    assert outcomes == [before] * outcomes.count(before) + ["newnew"] * outcomes.count("newnew")


def test_killed_while_writing_the_one_before_is_found(tmp_path: Path):
    write(tmp_path / "checkpoint-10")
    child = subprocess.Popen(
        command(WAITING, tmp_path / "checkpoint-20"), env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "writing\n"
        assert list_checkpoints(tmp_path) == [tmp_path / "checkpoint-10"], "seen before it was whole"
    finally:
        child.kill()
        child.communicate()
    assert get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
    verify(tmp_path / "checkpoint-10")


def test_a_full_disk_leaves_the_one_before(tmp_path: Path):
    """A limit on the size of files does to a process what a full disk does."""
    write(tmp_path / "checkpoint-10")
    script = """
import resource, signal, sys
from pathlib import Path
from ostinato.checkpoint.atomic import atomic_directory
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with atomic_directory(Path(sys.argv[1])) as scratch:
        (scratch / "model.safetensors").write_bytes(bytes(5000))
except OSError as error:
    print(error)
"""
    child = subprocess.run(
        command(script, tmp_path / "checkpoint-20"), env=environment(), capture_output=True, text=True, check=True
    )
    assert "too large" in child.stdout
    assert os.listdir(tmp_path) == ["checkpoint-10"]
    verify(tmp_path / "checkpoint-10")
